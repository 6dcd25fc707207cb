"""The rooms of the package and the one direction in which they import each other."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import networkx
import pytest

from tests.conftest import ROOT

#: Each room may import the rooms before it, and those of its own line.
ORDER = (
    ("model.dataclass", "model.regex", "model.rankset"),
    ("model.frames", "errors"),
    ("model.codec",),
    ("model.events",),
    ("model.incident", "isolated"),
    ("model.conclusion",),
    ("ingest.files", "ingest.lines", "ingest.recorder"),
    ("ingest.torch_logs",),
    ("ingest.excerpts", "ingest.job_logs", "ingest.nccl", "ingest.stacks"),
    ("ingest.workers",),
    ("ingest.evidence",),
    ("ingest",),
    ("knowledge",),
    ("align",),
    ("explain",),
    ("causes",),
    ("verdict",),
    ("analysis",),
    ("report", "export"),
    ("history",),
)
MOST_MODULES = 16  # of one folder
MOST_AT_THE_TOP = 8  # what users import, and what starts the command

PACKAGE = ROOT / "hangscope"


def imports(path: Path) -> Iterator[str]:
    """Yield the modules of this project that a module imports when it runs, by their dotted names without the project's."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.ImportFrom)
            and (node.module or "").startswith("hangscope")
            and id(node) not in typing_only
        ):
            for name in node.names:
                whole = f"{node.module}.{name.name}"
                part = PACKAGE.parent / whole.replace(".", "/")
                is_module = part.is_dir() or part.with_suffix(".py").exists()
                yield (whole if is_module else node.module or "").removeprefix("hangscope.")


def room(module: str) -> str:
    """Return the room of a module: its package, `ingest` for the modules that lie in that folder itself, and of the model each module."""
    parts = module.split(".")
    if parts[0] == "model":
        return module
    if parts[0] == "ingest":
        return ".".join(parts[:2]) if (PACKAGE / "/".join(parts[:2])).is_dir() else "ingest"
    return parts[0]


@cache
def edges() -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for path in PACKAGE.rglob("*.py"):
        module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")
        for target in imports(path):
            found[module].add(target)
    return found


def test_no_room_imports_one_behind_it() -> None:
    place = {name: number for number, names in enumerate(ORDER) for name in names}
    wrong = sorted(
        f"{module} imports {target}"
        for module, targets in edges().items()
        for target in targets
        if room(module) in place and room(target) in place and place[room(target)] > place[room(module)]
    )
    assert not wrong


def test_no_two_modules_import_each_other() -> None:
    graph = networkx.DiGraph([(m, t) for m, targets in edges().items() for t in targets if m != t])
    # What is imported inside a function is asked for when it runs, and may close a circle on paper only.
    circles = [c for c in networkx.strongly_connected_components(graph) if len(c) > 1]
    assert [sorted(c) for c in circles] in ([], [["api", "safely"]])


@pytest.mark.parametrize(
    "folder",
    sorted(p for p in PACKAGE.rglob("*") if p.is_dir() and p.name != "__pycache__"),
    ids=lambda p: p.name,
)
def test_no_room_is_crowded(folder: Path) -> None:
    modules = [p for p in folder.glob("*.py") if p.name != "__init__.py"]
    assert len(modules) <= MOST_MODULES


def test_the_top_level_holds_little() -> None:
    assert len([p for p in PACKAGE.glob("*.py") if not p.name.startswith("__")]) <= MOST_AT_THE_TOP
