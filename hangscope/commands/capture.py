"""`hangscope capture`: stacks and recorders of a running job."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hangscope.commands.options import shared
from hangscope.commands.terminal import writable
from hangscope.errors import NoInputError, UsageError
from hangscope.model.frames import Stack

if TYPE_CHECKING:
    from hangscope.live.folder import RunFolder
    from hangscope.live.look.activity import Activity
    from hangscope.live.look.capture import Taken
    from hangscope.live.look.processes import Process
    from hangscope.live.look.user import User


@click.command(short_help="Take stacks and recorder dumps from a running job.")
@click.argument("pids", metavar="PID...", nargs=-1, type=click.IntRange(1))
@click.option("--job", metavar="FOLDER", help="The folder of a job under `hangscope run`, instead of PID.")
@click.option(
    "--dir",
    "directory",
    metavar="DIR",
    help="Folder for the captures (default: hangscope-<PID>, or the job's folder).",
)
@shared("quiet")
def capture(pids: tuple[int, ...], job: str | None, directory: str | None, quiet: bool) -> None:
    """Take stacks and recorder dumps from all ranks on this node, twice, without disturbing the job.

    PID is the process ID of a launcher or a rank; all processes below it are captured. Ranks are recognized by the
    environment variables that their launcher set. The command prints the stacks of all ranks as one tree. Run
    `hangscope analyze` on the folder for a verdict. As root, the command acts as the job's user.
    """
    # All imports, and py-spy, come before the change of user, who may not read this installation.
    from hangscope.ingest.stacks.dumps import read_processes  # noqa: F401
    from hangscope.live.look import capture as look
    from hangscope.live.look.spy import open_program
    from hangscope.report.pictures.stack_tree import tree_text  # noqa: F401

    if bool(pids) == bool(job):
        raise UsageError("give either process ids or --job FOLDER", "hangscope capture 4711")
    found = _processes(pids, job)
    open_program()
    shown, folder = _folder(found, pids, job, directory)

    def take(before: Activity | None) -> Taken:
        with writable(shown, "--dir"):
            return look.capture(folder, found, everywhere=bool(job), before=before)

    first = take(None)
    time.sleep(look.GAP)
    _say(take(first.activity), shown, quiet)


def _processes(pids: tuple[int, ...], job: str | None) -> list[Process]:
    """Return the processes of a job, the ranks first; raise UsageError where there are none."""
    from hangscope.live.folder import RunFolder
    from hangscope.live.look import processes as table

    if job:
        folder = RunFolder.of_job(job).latest()
        if not folder.is_of_run:
            hint = "give the process id of the launcher instead"
            raise UsageError(f"{job} is not the folder of a `hangscope run`", hint)
        return table.of_run(str(folder.path))
    if gone := [pid for pid in pids if not Path(f"/proc/{pid}").exists()]:
        hint = "run this on the node of the launcher or of the rank"
        raise UsageError(f"there is no process {gone[0]} on this node", hint)
    found = table.job_of(pids)
    if not any(process.is_rank for process in found):
        hint = "a rank has RANK, SLURM_PROCID or MPI's variables in its environment; run this on its node, as its user"
        raise UsageError(f"no rank was found at or below process {', '.join(map(str, pids))}", hint)
    return found


def _folder(
    found: list[Process], pids: tuple[int, ...], job: str | None, directory: str | None
) -> tuple[Path, RunFolder]:
    """Return where the captures go: its name for people, and the folder to write to as the user of the ranks.

    Root continues as that user here. What a rank says of its folder counts only where that is its own user's run.
    """
    from hangscope.live.folder import RunFolder
    from hangscope.live.look.user import continue_as, make

    user = _user(found, job)
    uid = os.geteuid() if user is None else user.uid
    named = {process.folder for process in found if process.folder}
    if job or (not directory and len(named) == 1 and RunFolder(Path(*named)).is_run_of(uid)):
        path = RunFolder.of_job(job).latest().path if job else Path(*named)
        if user is not None:
            continue_as(user)
        return path, RunFolder(path)
    path = Path(directory or f"hangscope-{pids[0]}")
    try:
        if not make(path, user) and not directory and os.lstat(path).st_uid != uid:
            raise UsageError(f"{path} belongs to another user", "choose another place with --dir")
        os.chdir(path)  # its path may lead through folders that are closed to the user
    except OSError as error:
        what = f"{path} cannot be used: {error.strerror or error}"
        raise UsageError(what, "choose another --dir") from None
    if user is not None:
        continue_as(user)
    return path, RunFolder(Path())


def _user(found: list[Process], job: str | None) -> User | None:
    """Return the job's user if this process runs as root, None if it already runs as that user."""
    from hangscope.live.look.user import owner_of, user_of

    if os.geteuid() != 0:
        return None
    ranks = {process.uid: process.pid for process in found if process.is_rank}
    if len(ranks) > 1:
        hint = "give the process ids of one user's ranks alone"
        raise UsageError(f"the ranks belong to {len(ranks)} users", hint)
    user = owner_of(job) if job else user_of(ranks.popitem()[1])
    return user if user is not None and user.uid != 0 else None


def _say(taken: Taken, path: Path, quiet: bool) -> None:
    if not taken.stacks and not taken.recorders:
        hint = f"pip install 'hangscope[capture]' brings py-spy; what the kernel tells is in {path}"
        raise NoInputError(f"neither stacks nor recorders could be had: {'; '.join(taken.missing)}", hint)
    click.echo(_tree(taken.folder), nl=False)
    if quiet:
        return
    for how in sorted(set(taken.stacks.values())):
        ranks = sorted(rank for rank, other in taken.stacks.items() if other == how)
        click.echo(f"stacks of {len(ranks)} ranks ({how})", err=True)
    for text in taken.missing:
        click.echo(f"hangscope: not available: {text}", err=True)
    click.echo(f"Wrote {path}; next: hangscope analyze {path}", err=True)


def _tree(folder: Path) -> str:
    """Return the main threads of all ranks as one tree, which shows at a glance which rank is alone."""
    from hangscope.ingest.stacks.dumps import read_processes
    from hangscope.report.pictures.stack_tree import merged, tree_text

    stacks: dict[int, Stack] = {}
    for path in sorted(folder.glob("stack_rank_*.txt")):
        with open(path, "rb") as stream:
            processes = read_processes(stream, path.name)
        if processes and processes[0].threads:
            stacks[int(path.stem.rpartition("_")[2])] = processes[0].threads[0][1]
    return tree_text(merged(stacks))
