"""The snippets of docs/capture.md run on gloo, and the shell ones are shell."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import hangscope
from tests.needs import needs

pytestmark = pytest.mark.slow

DOC = (Path(__file__).parents[2] / "docs" / "capture.md").read_text()
PYTHON = re.findall(r"^```python\n(.*?)^```", DOC, re.M | re.S)
SHELL = re.findall(r"^```bash\n(.*?)^```", DOC, re.M | re.S)


@pytest.mark.parametrize("code", SHELL, ids=lambda code: code.split("\n")[0][:30])
def test_shell_snippets_parse(code: str) -> None:
    done = subprocess.run(["bash", "-n"], input=code, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@needs("torch")
@pytest.mark.parametrize("code", PYTHON, ids=lambda code: code.split("\n")[0][:30])
def test_python_snippets_can_be_pasted(code: str, tmp_path: Path) -> None:
    code = code.replace("/shared/job-17", str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@needs("torch")
def test_every_recorder_of_this_torch_is_dumped(tmp_path: Path) -> None:
    (code,) = [code for code in PYTHON if "def dump_all_recorders" in code]
    use = (
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo', init_method='file://' + str(Path('store').resolve()), rank=0, world_size=1)\n"
        "dist.all_reduce(torch.ones(4))\n"
        "print(*dump_all_recorders('left', 0))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code + use],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "left/gloo/comm_lib_trace_rank_0" in done.stdout
    report = hangscope.analyze(str(tmp_path / "left"), jobs=1)
    assert list(report.table["op"]) == ["all_reduce"]
