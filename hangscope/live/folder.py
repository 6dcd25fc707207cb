"""The folder of a run: what lies where. `analyze` reads it as it is.

report.html report.json        the report
launcher/HOST.run              the command, its settings, how it ended
launcher/HOST.{out,err}        what the command and its ranks printed, if they print into files
launcher/HOST.PID.{out,err}    what a Python launcher printed
logs/restart_N/rank_R.{out,err}    what each rank printed
dumps/                         what torch's watchdog writes by itself
capture_NN/                    one snapshot of the job while it was alive: stacks and recorders, which ranks computed,
                               and which store each rank reaches that is starting
stall/ at_end/                 what ranks wrote unasked: when they stalled, and at an uncaught exception
stalls.txt                     stalls that resolved themselves
stalls/N/                      the captures of such a stall
trigger                        its modification time asks all ranks of all nodes for a capture
nodes/                         the nodes that take part
attempt-N/                     the same again for each later run with this folder, from 2 on
"""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from hangscope.export.output import replace_file
from hangscope.ingest.files.run_evidence import LATER
from hangscope.live.watch.nodes import may_join
from hangscope.model.dataclass import dataclass

_MOST_ATTEMPTS = 10_000
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The folder of one run of one job, shared by its nodes if the disk is."""

    path: Path

    @classmethod
    def of_job(cls, given: str | None) -> RunFolder:
        """Return the folder that was given, else `hangscope-<job>` in the working directory."""
        if given:
            return cls(Path(given).absolute())
        names = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID")
        job = next(filter(None, map(os.environ.get, names)), os.getpid())
        return cls(Path.cwd() / f"hangscope-{job}")

    def make(self) -> RunFolder:
        """Make this folder and return it, or the next `attempt-N/` in it if an earlier run has used it.

        A run of the same job that is going on there, on other nodes, is joined. Nobody else may be able to write into the
        folder. Raises OSError.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        place = self.path
        for number in range(2, _MOST_ATTEMPTS):
            make_private(place)
            try:
                (place / "nodes").mkdir(0o700)
                break
            except FileExistsError:
                if may_join(place):
                    break
                place = self.path / f"{LATER}{number}"
        for name in ("launcher", "dumps"):
            make_private(place / name)
        return RunFolder(place)

    def latest(self) -> RunFolder:
        """Return the folder of the last run that used this one."""
        numbers = [int(n) for p in self.path.glob(f"{LATER}*") if (n := p.name[len(LATER) :]).isdecimal()]
        return RunFolder(self.path / f"{LATER}{max(numbers)}") if numbers else self

    def is_run_of(self, uid: int) -> bool:
        """Return whether it is there as the folder of a run, itself and not by a link, and belongs to a user."""
        try:
            info = os.lstat(self.path)
            return stat.S_ISDIR(info.st_mode) and info.st_uid == uid and self.is_of_run
        except (OSError, ValueError):
            return False

    @property
    def is_of_run(self) -> bool:
        """Whether `hangscope run` has made it."""
        return (self.path / "nodes").is_dir()

    def capture(self, number: int) -> Path:
        """Return the folder of one capture."""
        return self.path / f"capture_{number:02d}"

    def captures(self, known: int = 0) -> int:
        """Return the number of the last capture, at least `known`; the cost does not depend on what else is in the folder."""
        while self.capture(known + 1).exists():
            known += 1
        return known

    def before_the_end(self) -> list[Path]:
        """Return what was left of a job that stalled before it was ended, and whether it then stood still; nothing if it did not."""
        left = (*sorted(self.path.glob("capture_*")), self.path / "stall")
        still = [path for path in left if _holds_files(path)]
        more = [p for p in (self.path / "logs", self.path / "dumps") if _holds_files(p)]
        return [*still, *more, *sorted(self.path.glob("launcher/*.run"))] if still else []


def make_private(path: Path) -> None:
    """Make a folder that nobody else may enter, or check that an existing one is ours alone. Raises OSError."""
    with suppress(FileExistsError):
        path.mkdir(0o700)
    # A link may have been planted by another user, as well as what it points to.
    for found in (path.lstat(), path.stat()):
        if found.st_uid != os.geteuid():
            raise PermissionError(0, f"it belongs to another user (uid {found.st_uid})", str(path))
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(0, "it is not a folder", str(path))
    if found.st_mode & _OTHERS_WRITE:
        raise PermissionError(0, "other users may write into it (chmod go-w)", str(path))


def make_anywhere(given: str | None, problems: list[str]) -> RunFolder:
    """Make the folder of a run, in the temporary folder if it cannot be where it should: then `problems` gets a sentence.

    Raises OSError if it cannot be anywhere.
    """
    wanted = RunFolder.of_job(given)
    try:
        return wanted.make()
    except OSError as error:
        problems.append(f"{wanted.path} is not used: {error.strerror or error}")
    try:
        return RunFolder(Path(tempfile.mkdtemp(prefix="hangscope-"))).make()
    except OSError as error:
        here = f"nor is {tempfile.gettempdir()}: {error.strerror or error}"
        raise OSError("; ".join((*problems, here))) from None


def _holds_files(folder: Path) -> bool:
    return any(path.is_file() for path in folder.rglob("*"))


def ranks_in(folder: Path, pattern: str) -> set[int]:
    """Return the ranks at the end of the names of complete files: 3 of `nccl_trace_rank_3.json`, none of `.stack_rank_3.4711`."""
    ends = [path.name.partition(".")[0].rpartition("_")[2] for path in folder.glob(pattern)]
    return {int(rank) for rank in ends if rank.isdecimal()}


def leave(target: Path, data: bytes) -> None:
    """Write a file that is seen complete or not at all, though other nodes may write the same. Raises OSError."""
    replace_file(target, lambda out: out.write(data))
