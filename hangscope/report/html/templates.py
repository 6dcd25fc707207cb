"""The page's templates: compiled where the package was built with this jinja2, otherwise read from `report_templates/`.

Lexing and compiling them takes longer than a small report's analysis. `.ci/hatch_build.py` compiles them into the wheel with
jinja2's own compiler; a checkout, or an installation with another jinja2 than it was built with, compiles them as it goes.
"""

from __future__ import annotations

import importlib.resources
from functools import lru_cache
from pathlib import Path

import jinja2
from jinja2 import BaseLoader, Environment, FileSystemLoader, ModuleLoader, StrictUndefined

#: in the installed `report_templates/`; code that one jinja2 compiled is for that one alone
COMPILED = f"compiled_{jinja2.__version__}"


def environment(loader: BaseLoader) -> Environment:
    """Return how the page is rendered; what was compiled under one such environment runs under any."""
    made = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, loader=loader
    )
    made.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return made


@lru_cache(maxsize=1)
def page_environment() -> Environment:
    """Return the environment that has the page's templates."""
    folder = Path(str(importlib.resources.files("hangscope"))) / "report_templates"
    if not folder.is_dir():
        folder = Path(__file__).parents[3] / "report_templates"
    compiled = folder / COMPILED
    return environment(ModuleLoader(compiled) if compiled.is_dir() else FileSystemLoader(folder))


def compile_into(target: Path, templates: Path) -> None:
    """Compile the templates of a folder into `target`, a folder for `ModuleLoader`."""
    environment(FileSystemLoader(templates)).compile_templates(target, zip=None, ignore_errors=False)
