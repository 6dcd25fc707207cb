"""`hangscope capture`: what a job that is alive can tell now."""

from __future__ import annotations

import time
from pathlib import Path

import click

from hangscope.commands.options import quiet_option
from hangscope.errors import NoInputError, UsageError
from hangscope.frames import Stack


@click.command()
@click.argument("pids", metavar="PID...", nargs=-1, type=click.IntRange(1))
@click.option("--job", metavar="FOLDER", help="The folder of a running `hangscope run`, on any node.")
@click.option(
    "--dir",
    "directory",
    metavar="DIR",
    help="Where the captures go (default: hangscope-<PID>, or the job's folder).",
)
@quiet_option
def capture(pids: tuple[int, ...], job: str | None, directory: str | None, quiet: bool) -> None:
    """Take the stacks and recorders of all ranks on this node, twice, without disturbing the job.

    PID is a launcher, a rank, or several: everything below it is looked at. Ranks are told by the variables that their
    launcher gave them. Prints where they stand as one tree; `hangscope analyze` the folder for the verdict.
    """
    from hangscope.live.folder import RunFolder
    from hangscope.live.look import capture as look
    from hangscope.live.look import processes as table

    if bool(pids) == bool(job):
        raise UsageError("give either process ids or --job FOLDER", "hangscope capture 4711")
    found = table.of_run(str(RunFolder.of_job(job).path)) if job else table.job_of(pids)
    under = sorted({process.folder for process in found if process.folder})
    given = job or directory or (under[0] if len(under) == 1 else f"hangscope-{pids[0]}")
    folder = RunFolder.of_job(given)
    if job and not folder.agent.is_dir():
        raise UsageError(
            f"{job} is not the folder of a `hangscope run`", "give the process id of the launcher instead"
        )
    if gone := [pid for pid in pids if not Path(f"/proc/{pid}").exists()]:
        raise UsageError(
            f"there is no process {gone[0]} on this node",
            "run this on the node of the launcher or of the rank",
        )
    if not job and not any(process.is_rank for process in found):
        raise UsageError(
            f"no rank was found at or below process {', '.join(map(str, pids))}",
            "a rank has RANK, SLURM_PROCID or MPI's variables in its environment; run this on its node, as its user",
        )
    for number in range(2):
        if number:
            time.sleep(look.GAP)
        taken = look.capture(folder, found, everywhere=bool(job))
    if not taken.stacks and not taken.recorders:
        raise NoInputError(
            f"neither stacks nor recorders could be had: {'; '.join(taken.missing)}",
            f"install py-spy here and take it again; what the kernel tells is in {taken.folder.parent}",
        )
    click.echo(_tree(taken.folder), nl=False)
    if quiet:
        return
    for how in sorted(set(taken.stacks.values())):
        ranks = sorted(rank for rank, other in taken.stacks.items() if other == how)
        click.echo(f"stacks of {len(ranks)} ranks ({how})", err=True)
    for text in taken.missing:
        click.echo(f"hangscope: not to be had: {text}", err=True)
    click.echo(f"Wrote {taken.folder.parent}; next: hangscope analyze {taken.folder.parent}", err=True)


def _tree(folder: Path) -> str:
    """Return the main threads of all ranks as one tree, which says at a glance who stands alone."""
    from hangscope.ingest.stacks.dumps import read_processes
    from hangscope.report.pictures.stack_tree import merged, tree_text

    stacks: dict[int, Stack] = {}
    for path in sorted(folder.glob("stack_rank_*.txt")):
        with open(path, "rb") as stream:
            processes = read_processes(stream, path.name)
        if processes and processes[0].threads:
            stacks[int(path.stem.rpartition("_")[2])] = processes[0].threads[0][1]
    return tree_text(merged(stacks))
