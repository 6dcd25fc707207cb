"""Through how many modules a watchdog line, a dump and a stack pass on their way to a report.

    python benchmarks/walk.py [--modules]

Counts the package's modules in which a function is called, and the hand-offs: calls from one module to another. The decorators of
model/dataclass.py and model/regex.py do not count. `--modules` lists them.
"""

import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import hangscope  # noqa: E402
from tests.in_thread import InThisThread  # noqa: E402

PACKAGE = str(ROOT / "hangscope") + "/"
INCIDENT = ROOT / "fixtures" / "uneven_loader_timeout" / "dumps"
LINE = (
    "[rank3]:[E1016 03:31:38.928019586 ProcessGroupNCCL.cpp:629] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL("
    "SeqNum=6, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600029 milliseconds before timing out.\n"
)


def walk(path: Path) -> tuple[list[str], int]:
    """Return the modules that an input passes, and the hand-offs; caches are full when counting begins."""
    modules, hops = set[str](), 0

    def ours(frame: FrameType | None) -> str:
        name = frame.f_code.co_filename if frame is not None else ""
        return name if name.startswith(PACKAGE) and not name.endswith(("dataclass.py", "regex.py")) else ""

    def see(frame: FrameType, event: str, _: Any) -> None:
        nonlocal hops
        if event == "call" and (module := ours(frame)):
            modules.add(module.removeprefix(PACKAGE))
            before = frame.f_back
            while before is not None and not ours(before):
                before = before.f_back
            hops += ours(before) not in ("", module)

    for profiled in (None, see):
        sys.setprofile(profiled)
        hangscope.analyze(path, executor=InThisThread()).to_json()
        sys.setprofile(None)
    return sorted(modules), hops


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        (line := Path(folder) / "paste.log").write_text(LINE)
        for path in (line, next(INCIDENT.rglob("*rank_0")), next(INCIDENT.rglob("stack_rank_0.txt"))):
            modules, hops = walk(path)
            print(
                f"{path.name}: {len(modules)} modules, {hops:,} hand-offs",
                *modules if "--modules" in sys.argv else (),
            )
