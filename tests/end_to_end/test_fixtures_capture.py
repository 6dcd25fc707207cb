"""The captured incidents are complete, neutral and consistent, and the demo can freeze a job anew."""

import importlib.util
import json
import re
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest

from hangscope import demo
from hangscope.demo import DemoError, freeze
from tests.needs import needs

pytestmark = pytest.mark.slow

FIXTURES = Path(__file__).parents[2] / "fixtures"
_LEFT = (("comm_lib_trace_rank_", ""), ("stack_rank_", ".txt"))
INCIDENTS = sorted(path.parent for path in FIXTURES.glob("*/incident.json"))


def load_freeze() -> ModuleType:
    spec = importlib.util.spec_from_file_location("freeze", FIXTURES / "freeze.py")
    assert isinstance(spec, ModuleSpec) and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("incident", INCIDENTS, ids=lambda path: path.name)
def test_incident_is_complete(incident: Path) -> None:
    spec = json.loads((incident / "incident.json").read_text())
    truth = json.loads((incident / "truth.json").read_text())
    tool = load_freeze()
    job = tool.Job(**spec["job"])
    assert tool.script_of(incident, spec).is_file()
    assert all(0 <= rank < job.world_size for rank in truth["culprits"])
    assert bool(truth["culprits"]) == bool(truth["accept_causes"]) == (truth.get("status") != "no_hang")
    assert list((incident / "dumps" / "recorder").iterdir())
    assert (incident / "dumps" / ("torchrun.stderr" if job.launcher == "torchrun" else "logs")).exists()


def test_nothing_of_the_capturing_machine_is_left() -> None:
    neutral = rb"workspace/train|opt/venv|usr/lib/python3|__w/pytorch"
    names = re.compile(rb"(?<![\w.])/(?!" + neutral + rb")\w+/[\w./-]+\.py\b")
    files = [path for incident in INCIDENTS for path in (incident / "dumps").rglob("*") if path.is_file()]
    assert files
    found = {(str(path), hit) for path in files for hit in names.findall(path.read_bytes())}
    assert not found


def test_a_capture_that_names_this_machine_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rank0.err").write_text(f'  File "{FIXTURES.parent}/train.py", line 3, in main\n')
    (tmp_path / "rank1.err").write_text(
        '  File "/opt/venv/lib/python3.11/site-packages/torch/x.py", line 3\n'
    )
    assert load_freeze().leaks(tmp_path) == [f"{tmp_path}/rank0.err: {FIXTURES.parent}"]


def test_the_readme_lists_every_incident() -> None:
    listed = re.findall(r"^\| `(\w+)` \|", (FIXTURES / "README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == [incident.name for incident in INCIDENTS]


def test_dumps_keep_shared_objects_and_types() -> None:
    frame = {"filename": "/tmp/job/train.py", "line": 3}
    dump = {"entries": [{"frames": [frame], "process_group": ("0", "x")}, {"frames": [frame]}]}
    out = load_freeze().neutral(dump, [("/tmp/job", "/workspace/train")], {})
    first, second = out["entries"]
    assert first["frames"][0] is second["frames"][0]
    assert first["frames"][0]["filename"] == "/workspace/train/train.py"
    assert first["process_group"] == ("0", "x")


@needs("torch")
def test_a_capture_leaves_an_incident(tmp_path: Path) -> None:
    tool = load_freeze()
    out = tool.run_job(
        FIXTURES / "rank_conditional_barrier" / "train.py", tmp_path / "job", tool.Job(4), timeout=90
    )
    dumps = sorted(path.name for path in (out / "dumps" / "recorder").iterdir())
    assert dumps == [f"comm_lib_trace_rank_{rank}" for rank in range(4)]
    stack = (out / "dumps" / "stacks" / "stack_rank_0.txt").read_text()
    assert "in save_checkpoint" in stack


@needs("torch")
def test_the_demo_leaves_what_the_agent_writes(tmp_path: Path) -> None:
    out = freeze("rank_conditional", tmp_path / "job", timeout=90)
    left = {path.name for path in (out / "dumps" / "stall").iterdir()}
    assert left == {f"{name}{rank}{end}" for name, end in _LEFT for rank in range(4)}
    assert "in save_checkpoint" in (out / "dumps" / "stall" / "stack_rank_0.txt").read_text()
    with pytest.raises(DemoError, match="exists already"):
        freeze("rank_conditional", out)


def test_freeze_refuses_what_it_cannot_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DemoError) as error:
        freeze("no_such", tmp_path)
    assert "rank_conditional" in error.value.hint
    monkeypatch.setattr(demo, "find_spec", lambda name: None)
    with pytest.raises(DemoError, match="needs torch") as error:
        freeze("stuck_rank", tmp_path / "job")
    assert "pip install" in error.value.hint
    assert not (tmp_path / "job").exists()


def test_torch_is_imported_only_in_the_ranks() -> None:
    code = "import sys, hangscope.demo; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
