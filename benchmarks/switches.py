"""Switches in the code of the core: every `if` and every function that can return something empty can be turned off."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


@dataclass(slots=True)
class Switch:
    """One branch or function: `off` is what is tried, `used` whether it did anything since that was last reset."""

    place: str
    what: str
    off: bool = False
    used: bool = False

    def test(self, value: Any) -> Any:
        """Return a condition's value, and note that it held."""
        self.used = self.used or bool(value)
        return False if self.off else value

    def result(self, value: Any) -> Any:
        """Return a function's value, and note one that is not empty."""
        self.used = self.used or bool(value)
        return value


SWITCHES: list[Switch] = []


def _empty(function: ast.FunctionDef) -> ast.expr | None:
    """Return the empty value of what a function returns, or None where its type has none."""
    told = ast.unparse(function.returns) if function.returns else ""
    if told == "bool":
        return ast.Constant(False)
    if told.endswith("| None"):
        return ast.Constant(None)
    kinds = {"list": "list", "Sequence": "list", "frozenset": "frozenset", "set": "set", "dict": "dict"}
    kind = kinds.get(told.partition("[")[0]) or ("tuple" if told.endswith("...]") else None)
    return ast.Call(ast.Name(kind, ast.Load()), [], []) if kind is not None else None


class _Instrument(ast.NodeTransformer):
    """Puts a switch into every `if` and every function that can return something empty."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.functions: list[int | None] = []

    def _new(self, node: ast.stmt, what: str) -> int:
        SWITCHES.append(Switch(f"{self.file}:{node.lineno}", what))
        return len(SWITCHES) - 1

    def visit_If(self, node: ast.If) -> ast.If:
        condition = ast.unparse(node.test)
        if condition != "TYPE_CHECKING":
            number = self._new(node, f"if {condition[:100]}")
            node.test = self._call(number, "test", node.test)
        self.generic_visit(node)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        empty = _empty(node)
        number = self._new(node, f"def {node.name}") if empty is not None else None
        self.functions.append(number)
        self.generic_visit(node)
        self.functions.pop()
        if number is not None:
            off = ast.Attribute(self._switch(number), "off", ast.Load())
            node.body.insert(ast.get_docstring(node) is not None, ast.If(off, [ast.Return(empty)], []))
        return node

    def visit_Return(self, node: ast.Return) -> ast.Return:
        self.generic_visit(node)
        if self.functions and (number := self.functions[-1]) is not None and node.value is not None:
            node.value = self._call(number, "result", node.value)
        return node

    def _switch(self, number: int) -> ast.expr:
        return ast.Subscript(ast.Name("__switches__", ast.Load()), ast.Constant(number), ast.Load())

    def _call(self, number: int, method: str, value: ast.expr) -> ast.expr:
        return ast.Call(ast.Attribute(self._switch(number), method, ast.Load()), [value], [])


class _Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        tree = ast.parse(self.get_data(path))
        file = str(Path(path).relative_to(ROOT))
        return compile(ast.fix_missing_locations(_Instrument(file).visit(tree)), path, "exec")

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["__switches__"] = SWITCHES
        super().exec_module(module)


class Finder(MetaPathFinder):
    """Loads the modules that are looked at with switches in them."""

    def __init__(self, wanted: Sequence[str]) -> None:
        self.wanted = tuple(wanted)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path) if fullname.startswith("hangscope.") else None
        if spec is None or spec.origin is None or not isinstance(spec.loader, SourceFileLoader):
            return None
        if not str(Path(spec.origin).relative_to(ROOT)).startswith(self.wanted):
            return None
        spec.loader = _Loader(fullname, spec.origin)
        return spec
