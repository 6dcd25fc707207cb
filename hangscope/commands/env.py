"""`hangscope env`: what to set before a job, for which torch, and what it costs."""

from __future__ import annotations

import json
import sys

import click

from hangscope.errors import UsageError
from hangscope.live.settings import Setting, settings
from hangscope.live.torch_version import parsed, torch_version

_POST_START = 'lifecycle: {postStart: {exec: {command: [sh, -c, "mkdir -p /job/dumps || true"]}}}'
_FOLDERS = {"shell": "$DIR", "slurm": "$DIR", "k8s": "/job", "ray": "/shared/job"}


@click.command(short_help="Print the environment variables to set before a run.")
@click.option("--shell", "form", flag_value="shell", default="shell", help="Print export lines (default).")
@click.option("--slurm", "form", flag_value="slurm", help="Print export lines for a batch script.")
@click.option("--k8s", "form", flag_value="k8s", help="Print the env of a container.")
@click.option("--ray", "form", flag_value="ray", help="Print a runtime_env.")
@click.option("--torch", "version", metavar="2.15", help="Version of torch (default: the installed one).")
def env(form: str, version: str | None) -> None:
    """Print the environment variables that make a job easier to diagnose, with the benefit and cost of each.

    `hangscope run` sets them automatically.
    """
    wanted = torch_version([sys.executable]) if version is None else parsed(version)
    if version is not None and wanted is None:
        raise UsageError(f"{version!r} is no version of torch", "give it like --torch 2.15")
    rows = settings(_FOLDERS[form], wanted)
    name = "torch of any version" if wanted is None else f"torch {wanted[0]}.{wanted[1]}"
    click.echo("\n".join(_PRINTERS[form](rows, name)))


def _exports(rows: list[Setting], name: str) -> list[str]:
    lines = [f"# {name}; DIR is one folder per job, on a disk that all nodes see", 'mkdir -p "$DIR/dumps"']
    for row in rows:
        lines += [f"# {row.gives}; costs {row.costs}", f"export {row.name}={row.value}"]
    return lines


def _batch(rows: list[Setting], name: str) -> list[str]:
    return ["DIR=$SLURM_SUBMIT_DIR/hangscope-$SLURM_JOB_ID", *_exports(rows, name)]


def _container(rows: list[Setting], name: str) -> list[str]:
    lines = [f"# {name}; /job is a volume that outlives the pod", _POST_START, "env:"]
    for row in rows:
        lines += [
            f"  # {row.gives}; costs {row.costs}",
            f"  - {{name: {row.name}, value: {json.dumps(row.value)}}}",
        ]
    return lines


def _runtime(rows: list[Setting], name: str) -> list[str]:
    inner = [line for row in rows for line in (f"    # {row.gives}; costs {row.costs}", f"    {json.dumps(row.name)}: {json.dumps(row.value)},")]  # fmt: skip
    return [
        f"# {name}; /shared/job is on a disk that all nodes see",
        'os.makedirs("/shared/job/dumps", exist_ok=True)',
        'ray.init(runtime_env={"env_vars": {',
        *inner,
        "}})",
    ]


_PRINTERS = {"shell": _exports, "slurm": _batch, "k8s": _container, "ray": _runtime}
