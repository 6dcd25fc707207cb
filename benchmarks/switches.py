"""Switches in the code of the core: every function, branch, clause and filter can be turned off while it runs."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


@dataclass(slots=True)
class Switch:
    """One part of the code: `off` is what is tried, `used` whether turning it off would have changed anything so far.

    `kind` is how it is turned off: a `function` returns its empty value, a `branch` is not taken, a `guard` always
    holds, a `clause` (one operand of `and` or `or`) and a `filter` (the condition of a comprehension) decide nothing,
    of a `choice` (`a if b else c`) `b` is always true or always false, a `part` of a list, a `statement` and a `loop` are left out.
    """

    file: str
    line: int
    column: int
    kind: str
    what: str
    off: bool = False
    used: bool = False

    @property
    def place(self) -> str:
        """Return the file and the line."""
        return f"{self.file}:{self.line}"

    def yes(self, value: Any) -> Any:
        """Return a condition's value, or true: of guards, clauses of `and`, filters."""
        self.used = self.used or not value
        return True if self.off else value

    def no(self, value: Any) -> Any:
        """Return a condition's value, or false: of branches, clauses of `or`."""
        self.used = self.used or bool(value)
        return False if self.off else value

    def none(self, value: Any) -> Any:
        """Return the value of an operand of `or`, or None."""
        self.used = self.used or bool(value)
        return None if self.off else value

    def items(self, value: Any) -> Any:
        """Return what a loop walks through, or a part of a list, or nothing."""
        self.used = self.used or not hasattr(value, "__len__") or len(value) > 0
        return () if self.off else value

    def result(self, value: Any) -> Any:
        """Return a function's value, and note one that is not empty."""
        self.used = self.used or bool(value)
        return value

    def on(self) -> bool:
        """Return whether a statement is executed."""
        self.used = True
        return not self.off


SWITCHES: list[Switch] = []


def _empty(function: ast.FunctionDef) -> ast.expr | None:
    """Return the empty value of what a function returns, or None where its type has none."""
    returns = ast.unparse(function.returns) if function.returns else ""
    if returns == "bool":
        return ast.Constant(False)
    if returns.endswith("| None"):
        return ast.Constant(None)
    if returns == "str":
        return ast.Constant("")
    kinds = {"list": "list", "Sequence": "list", "frozenset": "frozenset", "set": "set", "dict": "dict"}
    kind = kinds.get(returns.partition("[")[0]) or ("tuple" if returns.endswith("...]") else None)
    return ast.Call(ast.Name(kind, ast.Load()), [], []) if kind is not None else None


class _Instrument(ast.NodeTransformer):
    """Puts a switch into everything that can be turned off."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.functions: list[tuple[int | None, bool]] = []

    def _new(self, node: ast.AST, kind: str, what: str) -> int:
        SWITCHES.append(
            Switch(self.file, getattr(node, "lineno", 0), getattr(node, "col_offset", 0), kind, what[:100])
        )
        return len(SWITCHES) - 1

    def _conditions(self, test: ast.expr) -> ast.expr:
        """Return a condition with a switch in each of its clauses."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            test.operand = self._conditions(test.operand)
        elif isinstance(test, ast.BoolOp):
            method = "yes" if isinstance(test.op, ast.And) else "no"
            for place, operand in enumerate(test.values):
                number = self._new(operand, f"clause {method}", ast.unparse(operand))
                test.values[place] = self._call(number, method, self._conditions(operand))
        else:
            return self.visit(test)  # type: ignore[no-any-return]
        return test

    def visit_If(self, node: ast.If) -> ast.AST:
        condition = ast.unparse(node.test)
        if condition == "TYPE_CHECKING":
            return node
        branch = self._new(node, "branch", f"if {condition}")
        guard = self._new(node, "guard", f"if {condition}")
        node.test = self._call(branch, "no", self._call(guard, "yes", self._conditions(node.test)))
        node.body = self._block(node.body)
        node.orelse = self._block(node.orelse)
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        condition = ast.unparse(node)
        never = self._new(node, "choice no", condition)
        always = self._new(node, "choice yes", condition)
        node.test = self._call(never, "no", self._call(always, "yes", self._conditions(node.test)))
        node.body, node.orelse = self.visit(node.body), self.visit(node.orelse)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        method = "yes" if isinstance(node.op, ast.And) else "none"
        *first, last = node.values
        for place, operand in enumerate(first):
            number = self._new(operand, f"clause {method}", ast.unparse(operand))
            node.values[place] = self._call(number, method, self.visit(operand))
        node.values[-1] = self.visit(last)
        return node

    def visit_While(self, node: ast.While) -> ast.AST:
        node.test = self._conditions(node.test)
        node.body = self._block(node.body)
        return node

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        node.iter = self.visit(node.iter)
        for place, test in enumerate(node.ifs):
            number = self._new(test, "filter", f"if {ast.unparse(test)}")
            node.ifs[place] = self._call(number, "yes", self._conditions(test))
        return node

    def visit_Starred(self, node: ast.Starred) -> ast.AST:
        if isinstance(node.ctx, ast.Load):
            number = self._new(node, "part", ast.unparse(node))
            node.value = self._call(number, "items", self.visit(node.value))
        return node

    def visit_For(self, node: ast.For) -> ast.AST:
        number = self._new(node, "loop", f"for {ast.unparse(node.target)} in {ast.unparse(node.iter)}")
        node.iter = self._call(number, "items", self.visit(node.iter))
        node.body = self._block(node.body)
        node.orelse = self._block(node.orelse)
        return node

    def _block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """Return a block with a switch around each statement that is executed for its effect alone."""
        found: list[ast.stmt] = []
        for statement in body:
            number = None
            if isinstance(statement, ast.AugAssign) or (
                isinstance(statement, ast.Expr) and not isinstance(statement.value, ast.Constant)
            ):
                number = self._new(statement, "statement", ast.unparse(statement))
            changed = self.visit(statement)
            if number is not None:
                on = ast.Call(ast.Attribute(self._switch(number), "on", ast.Load()), [], [])
                changed = ast.If(on, [changed], [])
            found.append(changed)
        return found

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        # What is cached keeps the value of its first call, so that it cannot be turned off later.
        empty = None if any(ast.unparse(d) == "cache" for d in node.decorator_list) else _empty(node)
        number = self._new(node, "function", f"def {node.name}") if empty is not None else None
        self.functions.append((number, ast.unparse(node.returns) == "bool" if node.returns else False))
        node.body = self._block(node.body)
        self.functions.pop()
        if number is not None:
            off = ast.Attribute(self._switch(number), "off", ast.Load())
            node.body.insert(ast.get_docstring(node) is not None, ast.If(off, [ast.Return(empty)], []))
        return node

    def visit_Return(self, node: ast.Return) -> ast.AST:
        if node.value is not None:
            number, is_condition = self.functions[-1] if self.functions else (None, False)
            node.value = self._conditions(node.value) if is_condition else self.visit(node.value)
            if number is not None:
                node.value = self._call(number, "result", node.value)
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
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

    def __init__(self, wanted: Iterable[str]) -> None:
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
