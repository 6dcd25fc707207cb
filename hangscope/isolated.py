"""How this project starts its own child processes: so that no module of the working folder or the environment is run."""

from __future__ import annotations

import os
import sys
from pathlib import Path

# A child does no linear algebra; the threads that BLAS starts with numpy may not fit a limit on memory.
_ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def command(module: str) -> list[str]:
    """Return the command line that calls `main` of a module of hangscope in an isolated Python."""
    root = str(Path(__file__).resolve().parent.parent)
    paths = [root, *(path for path in sys.path if os.path.isabs(path))]
    return [
        sys.executable,
        "-I",
        "-c",
        f"import sys; sys.path[:] = {paths!r}; from {module} import main; main()",
    ]


def environment() -> dict[str, str]:
    """Return the environment of a child."""
    return {**os.environ, **dict.fromkeys(_ONE_THREAD, "1")}
