"""The agent inside a process: the program's files, forks and sub-interpreters stay the program's own."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.live.jobs import Place, watched


def run_as_rank(
    here: Place, program: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    (here / "rank.py").write_text(program)
    settings = {**(environment or here.environment), "RANK": "0", "HANGSCOPE_STALL": "1"}
    return here.ran(watched("-q", "--", sys.executable, "rank.py"), settings)


CLOSES_ALL = """
import os, signal, sys, time
time.sleep(0.5)  # the agent has opened what it needs
last = max(map(int, os.listdir("/proc/self/fd"))) + 1
os.closerange(3, last)
files = [os.open("mine%d" % n, os.O_RDWR | os.O_CREAT) for n in range(last - 3)]
pid = os.fork()
if pid == 0:  # the agent's hook in the child closes what it has inherited
    for number in files:
        os.write(number, b"child")
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
print("after")
time.sleep(2.5)
for number in files:
    assert os.pread(number, 1000, 0) == b"child", os.pread(number, 1000, 0)
print(signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)
"""


def test_descriptors_that_the_program_reuses_are_its_own(here: Place) -> None:
    done = run_as_rank(here, CLOSES_ALL)
    assert (done.returncode, done.stdout) == (0, "after\nTrue\n"), done.stderr
    assert {path.read_bytes() for path in here.glob("mine*")} == {b"child"}


def test_low_descriptors_are_the_programs(here: Place) -> None:
    program = "import os, time\ntime.sleep(0.5)\nprint(os.open('/dev/null', 0), os.open('/dev/null', 0))\n"
    alone = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run_as_rank(here, program).stdout == alone.stdout


def test_a_sub_interpreter_may_come_and_go(here: Place) -> None:
    program = (
        "try:\n    import _interpreters as sub\nexcept ImportError:\n    import _xxsubinterpreters as sub\n"
        "try:\n    one = sub.create(isolated=False)\nexcept TypeError:\n    one = sub.create('legacy')\nsub.run_string(one, 'import threading')\nsub.destroy(one)\nprint('ended')\n"
    )
    done = run_as_rank(here, program)
    assert (done.returncode, done.stdout) == (0, "ended\n"), done.stderr


def test_sigterm_is_as_python_has_it(here: Place) -> None:
    """No handler of ours, in the rank or in what it forks: neither Python's nor one of C."""
    program = (
        "import os, signal\ncaught = next(l for l in open('/proc/self/status') if l.startswith('SigCgt'))\n"
        "print(int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1)\n"
        "signal.signal(signal.SIGTERM, lambda *_: print('handled', flush=True))\n"
        "if os.fork() == 0:\n    os.kill(os.getpid(), signal.SIGTERM)\n    os._exit(0)\nos.wait()\n"
    )
    done = run_as_rank(here, program)
    assert (done.returncode, done.stdout) == (0, "0\nhandled\n"), done.stderr


def test_a_disk_that_hangs_holds_up_no_print(here: Place) -> None:
    """The file of the copy is a pipe that nobody reads: whoever opens it waits forever."""
    program = "for n in range(5):\n    print('x' * 100000)\nprint('end')\n"
    (here.left / "logs" / "restart_0").mkdir(parents=True, mode=0o700)
    here.left.chmod(0o700)
    for kind in ("out", "err"):
        os.mkfifo(here.left / "logs" / "restart_0" / f"rank_0.{kind}")
    done = run_as_rank(here, program)
    assert done.returncode == 0 and done.stdout.endswith("x\nend\n"), done.stderr


def test_a_rank_that_starts_another_shows_its_own_stacks_alone(here: Place) -> None:
    """As Lightning starts them."""
    program = (
        "import os, subprocess, sys, time\nif os.environ['RANK'] == '0':\n"
        "    subprocess.Popen([sys.executable, 'rank.py'], env={**os.environ, 'RANK': '1'})\ntime.sleep(5)\n"
    )
    assert run_as_rank(here, program).returncode == 0
    left = [(here.left / "stall" / f"stack_rank_{rank}.txt").read_text() for rank in (0, 1)]
    assert [text.count("Process ") for text in left] == [1, 1]


def test_each_attempt_of_torchrun_has_its_own_dumps(here: Place) -> None:
    program = (
        "import os, time\nname = os.environ['TORCH_FR_DUMP_TEMP_FILE']\n"
        "while not os.path.isdir(os.path.dirname(name)): time.sleep(0.05)\nprint(name)\n"
    )
    bare = {k: v for k, v in here.environment.items() if not k.startswith("TORCH")}
    for restart in ("", "restart_2/"):
        counts = {"TORCHELASTIC_RESTART_COUNT": "2", "TORCHELASTIC_MAX_RESTARTS": "3"} if restart else {}
        place = here.below(f"of{restart.rstrip('/')}")
        done = run_as_rank(place, program, bare | counts)
        assert f"/left/dumps/{restart}comm_lib_trace_rank_\n" in done.stdout, done.stderr
