"""The newcomer's path: the wheel put into a fresh environment by pip, one command, and the report is on disk."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.live.jobs import Place, left_in, until
from tests.live.torch_jobs import SCRIPTS, free_port, job, line_of
from tests.needs import needs

pytestmark = [pytest.mark.real, needs("torch")]
ROOT = Path(__file__).resolve().parents[2]


def checked(*words: str | Path) -> str:
    """Return what a command printed; it must succeed."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        list(map(str, words)), env=environment, capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the programs of a fresh environment with hangscope in it; what it needs is found where the tests find it."""
    pytest.importorskip("hatchling", reason="building needs hatchling, which the `test` extra installs")
    folder = tmp_path_factory.mktemp("fresh")
    pip = [sys.executable, "-m", "pip"]
    checked(*pip, "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, ROOT)
    (wheel,) = folder.glob("hangscope-*.whl")
    checked(sys.executable, "-m", "venv", "--without-pip", folder / "venv")
    programs = folder / "venv" / "bin"
    purelib = checked(programs / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))")
    Path(purelib.strip(), "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    checked(*pip, "--python", programs / "python", "install", "-q", "--no-deps", "--no-index", wheel)
    where = checked(programs / "python", "-I", "-c", "import hangscope; print(hangscope.__file__)")
    assert Path(where.strip()).is_relative_to(folder / "venv")
    (programs / "torchrun").write_text(
        f"#!{programs / 'python'}\nfrom torch.distributed.run import main\nmain()\n"
    )
    (programs / "torchrun").chmod(0o755)
    return programs


def test_one_command_after_pip_install_gives_the_report_of_a_freeze(installed: Path, here: Place) -> None:
    settings = job("sleeping", here)
    for name in ("PYTHONPATH", "HANGSCOPE_STALL"):
        settings.pop(name, None)
    settings["PATH"] = f"{installed}{os.pathsep}{settings['PATH']}"
    words = ["hangscope", "run", "--hang-timeout", "10", "--"]
    words += ["torchrun", "--nproc-per-node", "2", "--master-port", str(free_port()), "sleeping.py"]
    with here.started([str(installed / words[0]), *words[1:]], settings) as process:
        until(lambda: any(here.glob("hangscope-*/report.json")), 90)
        (left,) = here.glob("hangscope-*")
        frozen_at = (left / "logs" / "restart_0" / "rank_1.out").stat().st_mtime
        taken = (left / "report.json").stat().st_mtime - frozen_at
        assert process.poll() is None  # it reports, and leaves the job to its owner
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
    assert not left_in(here)
    verdict = json.loads((left / "report.json").read_text())["verdict"]
    assert (verdict["cause"], verdict["culprit_ranks"]) == ("stuck_rank", [1])
    location = verdict["location"]
    assert (Path(location["file"]).name, location["line"]) == ("sleeping.py", line_of("sleeping"))
    assert "step 4" in output and "hang[" not in output
    assert (left / "report.html").stat().st_size > 10_000
    assert taken < 60, f"{taken:.0f} s from the freeze to the report"
    assert (SCRIPTS / "sleeping.py").read_text() == (here / "sleeping.py").read_text()
