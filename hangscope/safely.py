"""The analysis in a child with a deadline, for hooks that must never fail or hang themselves."""

from __future__ import annotations

import inspect
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from typing import Any

from hangscope import isolated
from hangscope._version import __version__
from hangscope.ingest.files.scratch import scratch_folder
from hangscope.model.codec import from_plain, to_plain
from hangscope.report.report import Report
from hangscope.report.schema.document import Document


def analyze_safely(paths: Any, *, deadline: float = 60.0, **options: Any) -> Report:
    """Analyse in a child process that is killed at the deadline; for failure hooks.

    Takes the paths and options of `analyze` but `executor` and `progress`; `deadline` is in seconds. Never raises for any input,
    and always returns a Report: `inconclusive` with warnings where nothing was readable or time ran out. Its `table`
    is empty, because only the report crosses from the child.
    """
    try:
        several = isinstance(paths, Iterable) and not isinstance(paths, (str, os.PathLike))
        one = os.fspath(paths) if isinstance(paths, os.PathLike) else str(paths)
        listed = [str(os.fspath(path)) for path in paths] if several else [one]
        request = json.dumps({"paths": listed, "options": options}, default=_plain)
        answer = json.loads(_run(request, deadline))
        if isinstance(answer.get("document"), dict):
            return Report(from_plain(Document, answer["document"]))
    except subprocess.TimeoutExpired:
        message = f"the analysis did not end within {deadline:g} seconds"
        answer = {"error": message, "hint": "raise deadline=, or run `hangscope analyze` on the folder"}
    except Exception as error:  # whatever went wrong, a hook gets a report
        answer = _failed(error)
    return Report(Document.without_claims(str(answer.get("error")), str(answer.get("hint", "")), __version__))


def _failed(error: Exception) -> dict[str, Any]:
    return {"error": f"the analysis failed: {type(error).__name__}: {error}"[:400]}


def _plain(value: Any) -> Any:
    """Return an option that JSON has no form for as one that it has: a set as a sorted list, a path as text. Raises TypeError."""
    return sorted(value) if isinstance(value, (set, frozenset)) else os.fspath(value)


def _run(request: str, deadline: float) -> bytes:
    with ExitStack() as stack:
        own = {}  # a child that is killed while it unpacks leaves nothing behind
        with suppress(OSError):  # without room there is nothing to unpack to, either
            own = {"TMPDIR": stack.enter_context(scratch_folder())}
        child = isolated.start(__name__, settings=own, start_new_session=True)
        try:
            return child.communicate(request.encode(), timeout=deadline)[0]
        except BaseException:
            with suppress(OSError, AttributeError):
                os.killpg(child.pid, signal.SIGKILL)  # the child's own readers are in its session
            isolated.discard(child)
            raise


def main() -> None:
    """Answer the one request on stdin: with the view of the report, or with the error and its hint."""
    answers, sys.stdout = sys.stdout.buffer, sys.stderr  # nothing but the answer may reach the pipe
    try:
        answer = _answer(json.loads(sys.stdin.buffer.read()))
    except Exception as error:  # whatever it is, the hook's report says it
        answer = _failed(error)
    answers.write(json.dumps(answer).encode())
    answers.flush()


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    from hangscope.api import analyze
    from hangscope.errors import HangscopeError

    options = request["options"]
    try:
        inspect.signature(analyze).bind(request["paths"], **options)
    except TypeError as error:
        return {"error": str(error), "hint": "see help(hangscope.analyze) for the options"}
    try:
        return {"document": to_plain(analyze(request["paths"], **options).document)}
    except HangscopeError as error:
        return {"error": error.message, "hint": error.hint}
