"""The folder of a run: what lies where. `analyze` reads it as it is.

report.html report.json        the report
run.json                       the command, its settings, how it ended
launcher/HOST.{out,err}        what the command printed on a node
logs/restart_N/rank_R.{out,err}    what each rank printed
dumps/                         what torch's watchdog writes by itself
capture_NN/                    one look at the job that was alive: stacks and recorders
stall/ at_end/                 what ranks left unasked, and when they were ended
trigger                        its modification time asks all ranks of all nodes for a capture
agent/                         the copy of the agent that the ranks load
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from hangscope.dataclass import dataclass
from hangscope.errors import UsageError
from hangscope.output import replace_file

_AGENT = Path(__file__).with_name("agent")
_AGENT_FILES = (_AGENT / "sitecustomize.py", *sorted((_AGENT / "hangscope_agent").glob("*.py")))


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The folder of one run of one job, shared by its nodes where the disk is."""

    path: Path

    @classmethod
    def of_job(cls, given: str | None) -> RunFolder:
        """Return the folder that was given, else `hangscope-<job>` in the working directory."""
        if given:
            return cls(Path(given).absolute())
        job = next(
            (os.environ[k] for k in ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID") if os.environ.get(k)), ""
        )
        return cls(Path.cwd() / f"hangscope-{job or os.getpid()}")

    def make(self) -> None:
        """Make the folders and copy the agent; raises UsageError where that cannot be.

        A folder that holds a report is that of an earlier run, and its evidence would be mixed with this one's.
        """
        if self.report.exists():
            raise UsageError(
                f"{self.path} holds the report of an earlier run", "remove it, or choose another --dir"
            )
        try:
            for name in ("launcher", "dumps", "agent"):
                (self.path / name).mkdir(parents=True, exist_ok=True)
            for file in _AGENT_FILES:
                target = self.agent / file.relative_to(_AGENT)
                target.parent.mkdir(exist_ok=True)
                leave(target, file.read_bytes())
        except OSError as error:
            raise UsageError(
                f"{self.path} cannot be written: {error.strerror or error}", "choose another place with --dir"
            ) from None

    def is_run_of(self, uid: int) -> bool:
        """Return whether it is there as the folder of a run, itself and not by a link, and belongs to a user."""
        try:
            info = os.lstat(self.path)
            return stat.S_ISDIR(info.st_mode) and info.st_uid == uid and self.agent.is_dir()
        except (OSError, ValueError):
            return False

    @property
    def agent(self) -> Path:
        """Return the folder that goes onto PYTHONPATH."""
        return self.path / "agent"

    @property
    def report(self) -> Path:
        """Return where the HTML report goes."""
        return self.path / "report.html"

    @property
    def json_report(self) -> Path:
        """Return where the JSON report goes."""
        return self.path / "report.json"

    @property
    def trigger(self) -> Path:
        """Return the file that asks all ranks for a capture when it is touched."""
        return self.path / "trigger"

    def capture(self, number: int) -> Path:
        """Return the folder of one capture."""
        return self.path / f"capture_{number:02d}"

    def captures(self) -> int:
        """Return how many captures there are."""
        names = (path.name.removeprefix("capture_") for path in self.path.glob("capture_*"))
        return max((int(name) for name in names if name.isdecimal()), default=0)

    def before_the_end(self) -> list[Path]:
        """Return what was left of a job that stood still before it was ended; nothing where it did not."""
        left = (*sorted(self.path.glob("capture_*")), self.path / "stall")
        still = [path for path in left if _holds_files(path)]
        return (
            [*still, *(p for p in (self.path / "logs", self.path / "dumps") if _holds_files(p))]
            if still
            else []
        )


def _holds_files(folder: Path) -> bool:
    return any(path.is_file() for path in folder.rglob("*"))


def leave(target: Path, data: bytes) -> None:
    """Write a file that is seen complete or not at all, though other nodes may write the same. Raises OSError."""
    replace_file(target, lambda out: out.write(data))
