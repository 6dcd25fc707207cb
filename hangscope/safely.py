"""The analysis in a child with a deadline, for hooks that must never fail or hang themselves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hangscope._version import __version__
from hangscope.api import Report
from hangscope.report.empty import empty_view


def analyze_in_child(paths: Any, deadline: float, options: dict[str, Any]) -> Report:
    """Return the report that a child makes within `deadline` seconds, or an inconclusive one that says why not."""
    try:
        if isinstance(paths, (str, os.PathLike)):
            listed = [os.fspath(paths)]
        elif isinstance(paths, Iterable):
            listed = [str(os.fspath(p)) for p in paths]
        else:
            listed = [str(paths)]
        request = json.dumps(
            {
                "paths": listed,
                "options": {
                    k: sorted(v) if isinstance(v, (set, frozenset)) else v for k, v in options.items()
                },
            }
        )
        answer = json.loads(_run(request, deadline))
        view = answer.get("view")
        if isinstance(view, dict):
            return Report(view)
        return Report(empty_view(str(answer.get("error")), str(answer.get("hint", "")), __version__))
    except subprocess.TimeoutExpired:
        return Report(
            empty_view(
                f"the analysis did not end within {deadline:g} seconds",
                "raise deadline=, or run `hangscope analyze` on the folder",
                __version__,
            )
        )
    except Exception as error:  # whatever went wrong, a hook gets a report
        return Report(
            empty_view(f"the analysis failed: {type(error).__name__}: {error}"[:400], "", __version__)
        )


def _run(request: str, deadline: float) -> bytes:
    root = str(Path(__file__).resolve().parent.parent)
    environment = dict(os.environ)
    environment["PYTHONPATH"] = os.pathsep.join(p for p in (root, environment.get("PYTHONPATH", "")) if p)
    child = subprocess.Popen(
        [sys.executable, "-m", "hangscope.safely"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        start_new_session=True,
    )
    try:
        return child.communicate(request.encode(), timeout=deadline)[0]
    except BaseException:
        try:
            os.killpg(child.pid, signal.SIGKILL)  # the child's own readers are in its session
        except (OSError, AttributeError):
            child.kill()
        child.wait()
        raise


def _main() -> None:
    from hangscope.api import analyze
    from hangscope.errors import HangscopeError

    request = json.loads(sys.stdin.buffer.read())
    try:
        answer: dict[str, Any] = {"view": analyze(request["paths"], **request["options"])._view}
    except HangscopeError as error:
        answer = {"error": error.message, "hint": error.hint}
    except TypeError as error:
        answer = {"error": str(error), "hint": "see help(hangscope.analyze) for the options"}
    sys.stdout.buffer.write(json.dumps(answer).encode())


if __name__ == "__main__":
    _main()
