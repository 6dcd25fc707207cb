"""`hangscope run` with ranks that need no torch: what passes through, what is kept, and what comes before the end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hangscope.live.folder import RunFolder
from hangscope.live.look.capture import capture
from hangscope.live.watch import progress
from tests.live.jobs import Place, hangscope, left_in, until, watched, write_job

STUCK = """
import os, sys, time

def load():
    time.sleep(300)

def train():
    for step in range(3):
        print("step", step)
    if os.environ["RANK"] == "1":
        load()
    time.sleep(300)

train()
"""

STALLED = progress.SHORT + 2.5  # s until a job that prints no more is taken for stalled


def call(here: Place, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return here.ran(watched(*words), {**here.environment, **more})


@contextmanager
def stuck(here: Place, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Yield a job of two ranks under watch that have printed something, one of which is stuck."""
    write_job(here, STUCK)
    with here.started(watched(*options, "--", sys.executable, "launch.py", "2")) as process:
        until(lambda: all((here / f"left/logs/restart_0/rank_{r}.out").exists() for r in range(2)))
        yield process


def test_a_healthy_command_passes_through_and_leaves_no_report(here: Place) -> None:
    program = "import sys; sys.stdout.buffer.write(bytes(range(256))); sys.stderr.write('e')"
    words = watched("--", sys.executable, "-c", program)
    done = subprocess.run(
        words, cwd=here, env=here.environment, capture_output=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, bytes(range(256)), b"e")
    assert not (here.left / "report.html").exists()


def test_output_that_goes_into_a_file_is_copied(here: Place) -> None:
    with open(here / "log", "w") as log:
        log.write("what was there before\n")
        log.flush()
        words = hangscope("run", "-q", "--dir", "left", "--", "sh", "-c", "echo out; echo err >&2")
        subprocess.run(words, cwd=here, env=here.environment, stdout=log, stderr=log, timeout=120, check=True)
    assert (here / "log").read_text() == "what was there before\nout\nerr\n"
    assert [p.read_text() for p in (here / "left/launcher").glob("*.out")] == ["out\nerr\n"]


@pytest.mark.parametrize(("script", "code"), [("exit 7", 7), ("kill -KILL $$", -9)])
def test_the_exit_is_the_commands(here: Place, script: str, code: int) -> None:
    done = call(here, "-q", "--", "sh", "-c", script)
    assert (done.returncode, done.stdout) == (code, "")
    assert (here.left / "report.json").exists()


def test_what_the_user_has_set_stays(here: Place) -> None:
    mine = {
        "TORCH_NCCL_TRACE_BUFFER_SIZE": "7",
        "NCCL_DEBUG": "INFO",
        "PYTHONPATH": here.environment["PYTHONPATH"],
    }
    done = call(here, "--", "env", **mine)
    seen = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    assert {name: seen[name] for name in ("TORCH_NCCL_TRACE_BUFFER_SIZE", "NCCL_DEBUG")} == {
        "TORCH_NCCL_TRACE_BUFFER_SIZE": "7",
        "NCCL_DEBUG": "INFO",
    }
    assert "TORCH_FR_BUFFER_SIZE" not in seen  # newer torch would take it before the one that was set
    assert seen["PYTHONPATH"].endswith(os.pathsep + mine["PYTHONPATH"])
    assert seen["TORCH_FR_DUMP_TEMP_FILE"].startswith(str(here.left))


def test_a_command_that_is_not_there_is_one_line(here: Place) -> None:
    (here / "text").write_text("no program")
    (here / "script").write_text("exit 3\n")
    (here / "script").chmod(0o755)
    ends = [call(here, "--", word) for word in ("no-such-command", "./text", "./script")]
    assert [(done.returncode, done.stdout) for done in ends] == [(127, ""), (126, ""), (3, "")]
    assert ends[0].stderr == "hangscope: no-such-command: command not found\n"


def test_an_unknown_option_is_not_run_as_a_command(here: Place) -> None:
    done = call(here, "--hang-timout", "900", "echo", "ran")
    assert (done.returncode, done.stdout) == (2, "") and "No such option" in done.stderr


def test_each_run_with_one_folder_has_its_own_attempt(here: Place) -> None:
    here.left.mkdir(0o700)
    codes = [call(here, "-q", "--", "sh", "-c", f"exit {n}").returncode for n in (3, 4)]
    assert codes == [3, 4]
    reports = sorted(str(path.relative_to(here)) for path in here.rglob("report.json"))
    assert reports == ["left/attempt-2/report.json", "left/report.json"]


def test_a_signal_that_does_not_end_goes_to_the_command(here: Place) -> None:
    program = "import signal, time; signal.signal(signal.SIGUSR1, lambda *_: exit(5)); print('ready', flush=True); time.sleep(60)"
    words = hangscope("run", "-q", "--dir", "left", "--", sys.executable, "-c", program)
    with here.started(words, first="ready\n") as process:
        process.send_signal(signal.SIGUSR1)
        assert process.wait(30) == 5


def test_the_users_own_sitecustomize_runs_and_the_agent_is_not_seen(here: Place) -> None:
    (here / "site").mkdir()
    (here / "site" / "sitecustomize.py").write_text("import sys\nsys.mine = __name__, __file__\n")
    program = "import sys; print(sys.mine, [p for p in sys.path if 'agent' in p], sorted(m for m in sys.modules if 'torch' in m))"
    path = os.pathsep.join((str(here / "site"), here.environment["PYTHONPATH"]))
    done = call(here, "--", sys.executable, "-c", program, PYTHONPATH=path, RANK="0")
    mine = ("sitecustomize", str(here / "site" / "sitecustomize.py"))
    assert done.stdout == f"{mine} [] []\n"


def test_a_launcher_that_passes_on_the_python_path_alone_brings_the_agent_along(here: Place) -> None:
    seen = call(here, "-q", "--", "env").stdout.splitlines()
    left = here.left
    settings = {"PATH": here.environment["PATH"], "RANK": "5"}
    settings |= dict(line.split("=", 1) for line in seen if line.startswith("PYTHON"))
    subprocess.run([sys.executable, "-c", "print('hi')"], env=settings, capture_output=True, check=True)
    assert (left / "logs" / "restart_0" / "rank_5.out").read_text() == "hi\n"


def test_each_ranks_output_is_kept_and_nothing_of_it_is_changed(here: Place) -> None:
    write_job(
        here,
        "import os, sys, logging\nprint('out', os.environ['RANK'], 'ü')\nsys.stdout.buffer.write(b'raw\\n')\n"
        "logging.warning('w%s', os.environ['RANK'])\nassert sys.stdout.fileno() == 1 and not sys.stdout.isatty()\n"
        "if os.environ['RANK'] == '1': raise SystemError('gone')\n",
    )
    buffered = {k: v for k, v in here.environment.items() if k != "PYTHONUNBUFFERED"}
    done = here.ran(watched("-q", "--", sys.executable, "launch.py", "2"), buffered)
    assert done.returncode == 1
    assert sorted(done.stdout.split("\n")) == ["", "out 0 ü", "out 1 ü", "raw", "raw"]
    logs = here.left / "logs" / "restart_0"
    assert (logs / "rank_1.out").read_bytes() == "out 1 ü\n".encode()
    assert (logs / "rank_0.err").read_text() == "WARNING:root:w0\n"
    assert "SystemError: gone" in (logs / "rank_1.err").read_text()
    report = here.report()
    assert (report["verdict"]["cause"], report["verdict"]["culprit_ranks"]) == ("crashed_rank", [1])


def test_neither_the_launcher_nor_an_import_is_a_first_progress(here: Place) -> None:
    write_job(
        here, "import slow\nimport time\nfor step in range(20):\n    print(step)\n    time.sleep(0.2)\n"
    )
    (here / "slow.py").write_text(
        "import os, sys, time\nprint('no GPU here', file=sys.stderr, flush=True)\n"
        "time.sleep(9 if os.environ['RANK'] == '1' else 8)\n"
    )
    launcher = (here / "launch.py").read_text()
    (here / "launch.py").write_text(f"print('setting OMP_NUM_THREADS', flush=True)\n{launcher}")
    words = ["--hang-timeout", "1", "--on-hang", "kill", "--", sys.executable, "launch.py", "2"]
    done = call(here, *words)
    assert (done.returncode, done.stderr.replace("\n", "")) == (0, "no GPU here" * 2)
    assert not list(here.left.glob("capture_*"))


@pytest.mark.real
@pytest.mark.parametrize("end", [0, 1])
def test_a_pause_that_was_reported_is_not_the_last_word(here: Place, end: int) -> None:
    write_job(
        here,
        "import os, time\nfor step in range(12):\n    print(step)\n    time.sleep(25 if step == 5 else 0.3)\n"
        f"if {end} and os.environ['RANK'] == '1': raise ValueError('the loss is nan')\n",
    )
    words = ["--hang-timeout", "2", "--", sys.executable, "launch.py", "2"]
    done = call(here, *words)
    assert done.returncode == end
    said = done.stderr
    assert said.index("capturing the job") < said.index("Wrote ") < said.index("the job makes progress again")
    if end:
        told = here.verdict()
        assert (told["cause"], told["culprit_ranks"]) == ("crashed_rank", [1])


def test_evidence_comes_before_the_end(here: Place) -> None:
    with stuck(here) as process:
        time.sleep(STALLED)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)
        assert process.returncode == -signal.SIGINT
    assert [p.name for p in sorted(here.left.glob("capture_*/stack_rank_*"))] == [
        "stack_rank_0.txt",
        "stack_rank_1.txt",
    ] * 2
    assert "in load" in (here.left / "capture_02" / "stack_rank_1.txt").read_text()
    assert not left_in(here)
    assert "Wrote " in said and (here.left / "report.json").exists()
    assert here.report()["world_size"] == 2
    read = json.loads((here.left / "evidence.json").read_text())["files"]
    assert any(name.endswith(".run") for name in read), "it says that the job was stalled"


def test_a_job_that_makes_progress_is_not_taken_for_frozen(here: Place) -> None:
    write_job(here, "import time\nfor step in range(600):\n    print(step)\n    time.sleep(0.1)\n")
    words = watched("--", sys.executable, "launch.py", "2")
    with here.started(words) as process:
        until(lambda: (here / "left/logs/restart_0/rank_1.out").exists())
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)
    assert "the job was making progress" in said and not list(here.left.glob("capture_*"))
    told = here.verdict()
    assert told is None or told["culprit_ranks"] == []


def test_the_second_signal_does_not_wait(here: Place) -> None:
    with stuck(here) as process:
        time.sleep(STALLED)
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None and "capturing it first" in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(8) == -signal.SIGTERM
    assert not left_in(here)


def test_a_signal_that_comes_twice_at_once_is_one(here: Place) -> None:
    """As `timeout` sends it: to `hangscope run`, and to its process group."""
    with stuck(here) as process:
        time.sleep(STALLED)
        os.kill(process.pid, signal.SIGTERM)
        time.sleep(0.05)
        os.killpg(process.pid, signal.SIGTERM)
        _, said = process.communicate(timeout=120)
    told = [line for line in said.splitlines() if line.startswith("hangscope: SIGTERM: ")]
    assert told == ["hangscope: SIGTERM: the job was stalled"] and "Wrote " in said


@pytest.mark.real
def test_a_job_one_of_whose_ranks_computes_is_not_ended(here: Place) -> None:
    write_job(
        here,
        "import os, time\nprint('step', flush=True)\nend = time.time() + 15\nwhile time.time() < end:\n"
        "    time.sleep(0.1) if os.environ['RANK'] == '0' else sum(range(10**5))\n",
    )
    words = ["--hang-timeout", "1", "--on-hang", "kill", "--", sys.executable, "launch.py", "2"]
    done = call(here, *words)
    assert done.returncode == 0, done.stderr


def test_a_touched_trigger_takes_a_capture_and_the_job_goes_on(here: Place) -> None:
    write_job(here, STUCK)
    words = hangscope("run", "-q", "--dir", "left", "--", sys.executable, "launch.py", "2")
    with here.started(words) as process:
        until(lambda: (here / "left/logs/restart_0/rank_1.out").exists())
        (here.left / "trigger").touch()
        stacks = [here.left / "capture_01" / f"stack_rank_{rank}.txt" for rank in range(2)]
        until(lambda: all(path.exists() for path in stacks))
        assert process.poll() is None
        job = here.ran(hangscope("capture", "--job", "left"))
        assert job.returncode == 0, job.stderr
        assert "  rank 1: rank.py:11 in train\n  rank.py:5 in load\n" in job.stdout
        assert (here.left / "capture_03" / "stack_rank_0.txt").exists()
        assert process.poll() is None


def test_a_container_without_user_and_home_is_enough(here: Place) -> None:
    write_job(here, STUCK)
    bare = {"PATH": here.environment["PATH"], "PYTHONPATH": here.environment["PYTHONPATH"]}
    words = watched("--", sys.executable, "-u", "launch.py", "2")
    with here.started(words, bare) as process:
        until(lambda: all((here / "left/logs/restart_0" / f"rank_{r}.out").exists() for r in range(2)))
        done = here.ran(hangscope("capture", str(process.pid)), bare)
        assert done.returncode == 0 and "rank 1: rank.py:11 in train" in done.stdout, done.stderr
        time.sleep(STALLED)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=120)
        assert process.returncode == -signal.SIGTERM
    assert "Traceback" not in said + done.stderr and "Wrote " in said
    assert here.report()["world_size"] == 2


def test_a_folder_that_is_lost_costs_the_evidence_and_not_the_job(here: Place) -> None:
    with stuck(here) as process:
        here.left.rename(here / "lost")
        here.left.touch()
        time.sleep(STALLED)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=120)
        assert process.returncode == -signal.SIGTERM
    assert "hangscope: no capture: " in said and "Traceback" not in said
    assert not left_in(here)


def test_a_false_alarm_removes_what_this_node_asked_for_and_nothing_else(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    first, second = capture(folder, []), capture(folder, [], number=1)
    assert (first.folder, first.own) == (second.folder, not second.own)
    assert not capture(folder, [], number=7).own


@pytest.mark.real
def test_ranks_without_the_agent_are_watched_and_named(here: Place) -> None:
    write_job(here, "import time\nfor n in range(6): print(n, flush=True); time.sleep(1)\ntime.sleep(20)\n")
    (here / "launch.py").write_text((here / "launch.py").read_text().replace('"rank.py"', '"-I", "rank.py"'))
    done = call(here, "--hang-timeout", "8", "--", sys.executable, "launch.py", "2")
    said = done.stderr
    assert done.returncode == 0 and "hangscope: no agent in ranks 0-1 (python -I" in said
    assert "capturing the job" in said, "within its first half minute"
    warnings = here.report()["warnings"]
    assert any("no agent in ranks 0-1" in warning["message"] for warning in warnings)


@pytest.mark.real
def test_a_job_that_does_not_start_is_diagnosed(here: Place) -> None:
    """Rank 2 is never started, and rank 1 waits where nobody listens."""
    write_job(
        here,
        "import os, socket, time\nif os.environ['RANK'] == '0': s = socket.create_server(('127.0.0.1', 0))\ntime.sleep(20)\n",
    )
    settings = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1", "WORLD_SIZE": "3"}
    (here / "launch.py").write_text(
        (here / "launch.py").read_text().replace('"WORLD_SIZE": str(n)', '"WORLD_SIZE": "3"')
    )
    words = ["--init-timeout", "4", "--", sys.executable, "launch.py", "2"]
    done = call(here, *words, **settings)
    said = done.stderr
    assert done.returncode == 0 and "no first progress" in said and "made progress meanwhile" not in said
    assert "hangscope: ranks 0-1 of 3 started on this node; rank 2 did not start here" in said
    assert "hangscope: ranks 0-1: no connection to the store at 127.0.0.1:1" in said
