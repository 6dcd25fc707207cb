"""`hangscope.capture` in jobs that are started without `hangscope run`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from hangscope.capture import leave_exception
from hangscope.live.agent.hangscope_agent.identity import Identity
from tests.live.jobs import Place, until, watched, write_job

RANK = """
import sys, threading, time
import hangscope.capture
assert hangscope.capture.start("left") is True and hangscope.capture.start("left") is True
assert not [name for name in sys.modules if name.split(".")[0] in ("torch", "pandas", "lightning", "ray")]
assert sum(thread.name == "hangscope" for thread in threading.enumerate()) == 1

def wait_here():
    print('ready')
    time.sleep(300)

wait_here()
"""


def test_a_script_can_start_the_agent_itself(here: Place) -> None:
    write_job(here, RANK)
    with here.started([sys.executable, "launch.py", "2"]):
        stacks = [here.left / "capture_01" / f"stack_rank_{rank}.txt" for rank in range(2)]
        until(lambda: len(list(here.left.glob("logs/*/*.out"))) == 2)
        (here.left / "trigger").touch()
        until(lambda: all(path.exists() for path in stacks))
        text = stacks[1].read_text()
        assert "in wait_here" in text and re.match(r"Process \d+: rank 1\n", text)


def test_a_script_that_starts_it_under_hangscope_run_has_one_agent(here: Place) -> None:
    program = "import hangscope.capture as c, threading as t\nassert c.start('other')\n"
    program += "print([each.name for each in t.enumerate()])"
    settings = {**here.environment, "RANK": "0"}
    words = watched("--", sys.executable, "-c", program)
    done = here.ran(words, settings)
    assert done.stdout == "['MainThread', 'hangscope']\n", done.stderr
    assert (here / "left/logs/restart_0/rank_0.out").read_text() == done.stdout


def test_a_folder_that_cannot_be_made_is_a_line_and_no_error(here: Place) -> None:
    (here / "file").write_text("")
    program = "import hangscope.capture as c; print(c.start('file/below'))"
    done = here.ran([sys.executable, "-c", program])
    assert (done.returncode, done.stdout) == (0, "False\n")
    assert done.stderr.startswith("hangscope: no evidence will be left in file/below")


def test_what_a_rank_raised_is_left_with_its_rank(tmp_path: Path) -> None:
    assert leave_exception(tmp_path, 3, "ValueError: x\n") == tmp_path / "at_end" / "rank_3.err"
    (tmp_path / "file").write_text("")
    assert leave_exception(tmp_path / "file", 3, "x") is None


@pytest.mark.parametrize(("restarts", "where"), [("0", "stall"), ("3", "stall/restart_1")])
def test_what_is_left_unasked_is_of_one_attempt(
    restarts: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", restarts)
    identity = Identity.__new__(Identity)
    identity.restart = 1
    assert identity.of_attempt("stall") == where
