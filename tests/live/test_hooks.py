"""The scripts among the hooks, run by bash: with hangscope missing, with a job that fails, and with one that reports."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from hangscope import hooks
from tests.conftest import Run
from tests.live.jobs import Place

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
    (container,) = yaml.safe_load(hooks.text("k8s"))["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["bash", "-c"] and len(container["args"]) == 1
    left = folder / "left"
    left.mkdir()  # the volume
    return (
        str(container["args"][0])
        .replace("/job", str(left))
        .replace("/dev/termination-log", f"{left}/message")
    )


@pytest.mark.parametrize(
    ("kind", "state"),
    [(kind, state) for kind in ("torchrun", "accelerate", "slurm", "k8s") for state in ("missing", "failing")]
    + [("torchrun", "no folder"), ("slurm", "no folder"), ("accelerate", "reporting"), ("k8s", "reporting")],
)
def test_a_hook_never_changes_how_a_job_ends(kind: str, state: str, here: Place) -> None:
    command = {
        "missing": None,
        "failing": "#!/bin/bash\nexec no-such-python\n",
    }.get(state, real(here.environment))
    settings = tools(here, SCRIPTS.get(kind, "torchrun"), command)
    text = script(kind, here)
    if state == "no folder":  # where the run's folder should be, none can be made
        settings |= {"DIR": "/dev/null/left", "SLURM_SUBMIT_DIR": "/dev/null", "TMPDIR": str(here)}
        text = text.replace(f"--dir {here.left}", "--dir /dev/null/left")
    done = here.ran(["bash", "-c", text, "hook", "train.py"], settings)
    assert (done.returncode, done.stdout[:7]) == (7, "started")
    reports = [path.name for path in here.rglob("report.json")]
    assert reports == (["report.json"] if state in ("no folder", "reporting") else [])
    if kind == "k8s" and state == "reporting":
        message = (here.left / "message").read_text()
        assert 0 < len(message.encode()) <= 4096 and "hangscope" in message


def by_schema(version: str) -> Callable[[str], str]:
    """Return what checks a manifest by the schema of a version of Kubernetes; strict: no unknown field."""
    schemas = pytest.importorskip("kubernetes_validate", reason="the schemas of Kubernetes: the `live` extra")
    version = schemas.latest_version() if version == "newest" else version

    def errors(manifest: str) -> str:
        try:
            schemas.validate(yaml.safe_load(manifest), version, strict=True)
        except schemas.ValidationError as error:
            return str(error)
        return ""

    return errors


def by_server(*options: str) -> Callable[[str], str]:
    """Return what asks a real API server, which stores nothing; HANGSCOPE_KUBECONFIG names how to reach it."""
    config = os.environ.get("HANGSCOPE_KUBECONFIG")
    if not config or shutil.which("kubectl") is None:
        pytest.skip("an API server of Kubernetes: set HANGSCOPE_KUBECONFIG, and install kubectl")
    command = ["kubectl", "--kubeconfig", config, "apply", "--dry-run=server", *options, "-f", "-"]

    def errors(manifest: str) -> str:
        done = subprocess.run(
            command, input=manifest, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0 or done.stderr, done
        return done.stderr if done.returncode else ""

    return errors


CHECKS = {
    "1.25": lambda: by_schema("1.25"),
    "newest": lambda: by_schema("newest"),
    "server": lambda: by_server("--validate=strict"),
    "server-side apply": lambda: by_server("--server-side"),
}


@pytest.fixture(params=CHECKS)
def errors(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Return what says what is wrong with a manifest: nothing if it is accepted as it is."""
    found = CHECKS[request.param]()
    assert found(hooks.text("k8s").replace("backoffLimit", "backupLimit"))
    return found


def test_the_manifest_is_what_kubernetes_accepts(errors: Callable[[str], str]) -> None:
    assert errors(hooks.text("k8s")) == ""


def test_the_settings_of_a_container_are_what_kubernetes_accepts(
    errors: Callable[[str], str], run: Run
) -> None:
    told = yaml.safe_load(run("env", "--k8s").stdout)
    assert list(told) == ["lifecycle", "env"] and len(told["env"]) > 3
    job = yaml.safe_load(hooks.text("k8s"))
    job["spec"]["template"]["spec"]["containers"][0].update(told)
    assert errors(yaml.safe_dump(job)) == ""


#: What each Python hook imports of its framework, as small as can be: training prints one line.
FRAMEWORKS = {
    "lightning/pytorch.py": "class Trainer:\n    def __init__(self, **_): pass\n    def fit(self, *_): print('trained')",
    "transformers.py": "class Trainer:\n    def __init__(self, *_, **__): pass\n    def train(self): print('trained')",
    "ray/train/__init__.py": "RunConfig = ScalingConfig = dict",
    "ray/train/torch.py": "class TorchTrainer:\n    def __init__(self, *_, **__): pass\n    def fit(self): print('trained')",
    "train.py": "Model = loader = arguments = data = model = train_function = lambda: None\ndef main(): print('trained')",
}


@pytest.mark.parametrize("kind", ["ray", "lightning", "trainer", "debug"])
def test_training_goes_on_where_hangscope_cannot_be_imported(kind: str, tmp_path: Path) -> None:
    for name, text in {**FRAMEWORKS, "hangscope.py": "raise ImportError('not here')"}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "hook.py").write_text(hooks.text(kind))
    done = subprocess.run(
        [sys.executable, "-S", "hook.py"],
        cwd=tmp_path, env={}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["trained"]), done.stderr
