"""The scripts among the hooks, run by bash: with hangscope missing, with a job that fails, and with one that reports."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from hangscope import hooks

FAILING = "echo started $*; exit 7"
SCRIPTS = {"torchrun": "torchrun", "accelerate": "accelerate", "slurm": "srun"}


def tools(folder: Path, program: str, hangscope: str | None) -> dict[str, str]:
    """Return an environment whose PATH has a launcher, bash and, where given, hangscope; nothing else."""
    binaries = folder / "bin"
    binaries.mkdir()
    scripts = {program: f"#!/bin/bash\n{FAILING}\n"}
    if hangscope is not None:
        scripts["hangscope"] = hangscope
    for name, text in scripts.items():
        (binaries / name).write_text(text)
        (binaries / name).chmod(0o755)
    for name in ("bash", "mkdir", "env"):
        found = shutil.which(name)
        assert found is not None
        (binaries / name).symlink_to(found)
    return {
        "PATH": str(binaries),
        "SLURM_SUBMIT_DIR": str(folder),
        "SLURM_JOB_ID": "17",
        "DIR": str(folder / "left"),
    }


def real(environment: dict[str, str]) -> str:
    return f'#!/bin/bash\nPYTHONPATH={environment["PYTHONPATH"]} exec {sys.executable} -m hangscope "$@"\n'


def script(kind: str, folder: Path) -> str:
    if kind != "k8s":
        return hooks.text(kind)
    container = yaml.safe_load(hooks.text("k8s"))["containers"][0]
    assert container["command"] == ["bash", "-c"] and len(container["args"]) == 1
    return str(container["args"][0]).replace("/job", str(folder / "left"))


@pytest.mark.parametrize("kind", ["torchrun", "accelerate", "slurm", "k8s"])
@pytest.mark.parametrize("state", ["missing", "failing", "reporting"])
def test_a_hook_never_changes_how_a_job_ends(
    kind: str, state: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    command = {
        "missing": None,
        "failing": "#!/bin/bash\nexec no-such-python\n",
        "reporting": real(environment),
    }[state]
    settings = tools(tmp_path, SCRIPTS.get(kind, "torchrun"), command)
    done = subprocess.run(
        ["bash", "-c", script(kind, tmp_path), "hook", "train.py"],
        env=settings, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout[:7]) == (7, "started")
    reports = [path.name for path in tmp_path.rglob("report.json")]
    assert reports == (["report.json"] if state == "reporting" else [])
    if kind == "k8s" and state == "reporting":
        message = (tmp_path / "left" / "message").read_text()
        assert 0 < len(message.encode()) <= 4096 and "hangscope" in message


def test_the_container_is_what_kubernetes_accepts() -> None:
    client = pytest.importorskip("kubernetes", reason="the Kubernetes client checks the file's schema").client
    (container,) = yaml.safe_load(hooks.text("k8s"))["containers"]
    names = {name: attribute for attribute, name in client.V1Container.attribute_map.items()}
    made = client.V1Container(**{names[key]: value for key, value in container.items()})
    types = client.V1Container.openapi_types
    for attribute in (names[key] for key in container):
        wanted = {"str": str, "list[str]": list}[types[attribute]]
        assert isinstance(getattr(made, attribute), wanted)
