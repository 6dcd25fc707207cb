"""The templates of the page and of the ticket: compiled where the package was built with this jinja2, otherwise read from `report_templates/`.

Lexing and compiling them takes longer than a small report's analysis. `.ci/hatch_build.py` compiles them into the wheel with
jinja2's own compiler; a checkout, or an installation with another jinja2 than it was built with, compiles them as it goes.
"""

from __future__ import annotations

import importlib.resources
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jinja2
from jinja2 import BaseLoader, Environment, FileSystemLoader, ModuleLoader, StrictUndefined

TICKET = "ticket.j2"
#: in the installed `report_templates/`; code that one jinja2 compiled is for that one alone
COMPILED = f"compiled_{jinja2.__version__}"


def environment(loader: BaseLoader, shown: Callable[[Any], Any] | None = None) -> Environment:
    """Return how templates are rendered; what was compiled under one such environment runs under any.

    `shown` is what every value goes through that is shown, if that is more than to escape it for HTML.
    """
    made = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=loader,
        finalize=shown,
    )
    made.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return made


def own_environment(shown: Callable[[Any], Any] | None = None) -> Environment:
    """Return an environment that has the templates: compiled ones, where there are any."""
    folder = Path(str(importlib.resources.files("hangscope"))) / "report_templates"
    if not folder.is_dir():
        folder = Path(__file__).parents[3] / "report_templates"
    compiled = folder / COMPILED
    return environment(ModuleLoader(compiled) if compiled.is_dir() else FileSystemLoader(folder), shown)


def compile_into(target: Path, templates: Path) -> None:
    """Compile the templates of a folder into `target`, a folder for `ModuleLoader`."""
    for shown, names in ((None, lambda name: name != TICKET), (str, lambda name: name == TICKET)):
        made = environment(FileSystemLoader(templates), shown)
        made.compile_templates(target, zip=None, ignore_errors=False, filter_func=names)
