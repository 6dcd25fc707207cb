"""Whatever happens to the watcher, its folder or its disk: the job runs, prints, saves and ends as it would without it."""

from __future__ import annotations

import errno
import os
import pty
import select
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from hangscope.live.folder import RunFolder, make_anywhere, make_private
from tests.live.jobs import Place, hangscope, left_in, until, watched

root_only = pytest.mark.skipif(
    os.geteuid() != 0, reason="needs root, to have another user or a file system of its own"
)


def watcher_of(pid: int) -> int:
    """Return the watcher that a `hangscope run` has started."""

    def found() -> list[int]:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [int(c) for c in children if b"live.watch.watcher" in Path(f"/proc/{c}/cmdline").read_bytes()]

    until(lambda: bool(found()))
    return found()[0]


STEPS = """
import os, time
for step in range(20):
    print("step", step, flush=True)
    time.sleep(0.1)
open("saved", "w").write("all of it")
raise SystemExit(3)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_watcher_that_dies_or_stops_does_not_reach_the_job(here: Place, number: signal.Signals) -> None:
    (here / "train.py").write_text(STEPS)
    with here.started(watched("--", sys.executable, "train.py"), first="step 0\n") as job:
        os.kill(watcher_of(job.pid), number)
        printed, said = job.communicate(timeout=30)
        assert job.returncode == 3 and printed.splitlines() == [f"step {n}" for n in range(1, 20)]
    assert (here / "saved").read_text() == "all of it"
    assert ("does not answer" in said) == (number == signal.SIGSTOP)


def test_hangscope_run_itself_may_be_killed_and_the_job_goes_on(here: Place) -> None:
    (here / "train.py").write_text(STEPS)
    with here.started(watched("--", sys.executable, "train.py"), first="step 0\n") as job:
        job.kill()
        assert [job.stdout.readline() for _ in range(19)][-1] == "step 19\n"
        until(lambda: not left_in(here))
    assert (here / "saved").read_text() == "all of it"


@contextmanager
def tmpfs(folder: Path, options: str) -> Iterator[Path]:
    """Yield a file system of its own."""
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", options, "none", str(folder)]
    if shutil.which("mount") is None or subprocess.run(words, capture_output=True, check=False).returncode:
        pytest.skip("a tmpfs cannot be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False)


@root_only
@pytest.mark.parametrize("fault", ["full later", "read-only", "removed"])
def test_a_folder_that_cannot_be_used_costs_the_evidence_and_not_the_job(here: Place, fault: str) -> None:
    (here / "train.py").write_text(STEPS)
    with tmpfs(here / "disk", "size=64k,mode=700") as disk:
        if fault == "read-only":
            subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        words = hangscope("run", "--dir", str(disk / "left"), "--", sys.executable, "train.py")
        settings = {**here.environment, "RANK": "0", "TMPDIR": str(here)}
        with here.started(words, settings, first="step 0\n") as job:
            if fault == "full later":
                with suppress(OSError), open(disk / "filler", "wb") as file:
                    file.write(bytes(1 << 20))
            elif fault == "removed":
                shutil.rmtree(disk / "left")
            printed, _ = job.communicate(timeout=120)
            assert job.returncode == 3 and printed.splitlines() == [f"step {n}" for n in range(1, 20)]
    assert (here / "saved").read_text() == "all of it"


def test_a_place_that_takes_no_folder_costs_nothing(here: Place) -> None:
    place = "/dev/null/left"
    words = hangscope("run", "--dir", place, "--", sys.executable, "-c", "print('ran'); exit(3)")
    done = here.ran(words, {**here.environment, "TMPDIR": str(here)})
    assert (done.returncode, done.stdout) == (3, "ran\n")
    assert done.stderr.startswith(f"hangscope: {place} is not used: ")


@pytest.mark.parametrize(("error", "at_once"), [(errno.EACCES, True), (errno.EIO, False)])
def test_a_disk_that_fails_costs_the_evidence_and_not_the_job(here: Place, error: int, at_once: bool) -> None:
    """From the start or later, in the processes of the job as well: opening, making, reading the status, writing."""
    if shutil.which("gcc") is None:
        pytest.skip("no gcc for the failing disk")
    source, shim = Path(__file__).parent / "scripts" / "failing_folder.c", here / "failing_folder.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(shim), str(source), "-ldl"], check=True)
    now = here / "now"
    (here / "train.py").write_text(STEPS.replace("for", "open('now', 'w').close()\nfor"))
    if at_once:
        now.touch()
    settings = {"RANK": "0", "LD_PRELOAD": str(shim), "FAIL_UNDER": str(here.left), "FAIL_IF": str(now)}
    words = watched("--", sys.executable, "train.py")
    settings = {**here.environment, **settings, "FAIL_ERRNO": str(error), "TMPDIR": str(here)}
    done = here.ran(words, settings)
    assert done.returncode == 3 and done.stdout.splitlines() == [f"step {n}" for n in range(20)], done.stderr
    assert "hangscope: " in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("world", [{"RANK": "²"}, {"RANK": "0", "WORLD_SIZE": "1000000000"}])
def test_numbers_that_no_job_has_reach_nothing(here: Place, world: dict[str, str]) -> None:
    words = watched("--", sys.executable, "-c", "import time; print('ran'); time.sleep(1); exit(3)")
    done = here.ran(words, here.environment | world)
    assert (done.returncode, done.stdout) == (3, "ran\n") and "Error" not in done.stderr, done.stderr


SAVING = """
import signal, sys, time
def save(*_):
    for shard in range(40):
        open("shard%02d" % shard, "w").close()
        time.sleep(0.2)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
while True:
    time.sleep(0.05)
"""


@pytest.mark.parametrize("group", [False, True])
def test_ranks_may_save_after_their_launcher_has_died(here: Place, group: bool) -> None:
    """A shell dies of SIGTERM at once. Whether the ranks have got it too or not: they get it once, and all the time they need.

    What is no rank gets nothing.
    """
    (here / "train.py").write_text(SAVING)
    helper = f'{sys.executable} -c \'import time; time.sleep(6); open("helped", "w")\' &\n'
    (here / "train.sh").write_text(f"{helper}RANK=0 {sys.executable} train.py\necho done\n")
    with here.started(watched("--", "bash", "train.sh"), first="ready\n") as job:
        time.sleep(1.5)
        os.killpg(job.pid, signal.SIGTERM) if group else job.terminate()
        assert job.wait(40) == -signal.SIGTERM
        assert not left_in(here)
    assert len(list(here.glob("shard*"))) == 40
    assert (here / "helped").exists() != group


def test_a_signal_reaches_the_command_once(here: Place) -> None:
    """Sent to `hangscope run` alone, and to its whole process group, which has the command in it."""
    (here / "train.py").write_text(
        "import signal, time\nsignal.signal(signal.SIGTERM, lambda *_: print('TERM', flush=True))\n"
        "print('ready', flush=True)\nend = time.time() + 2\nwhile time.time() < end: time.sleep(0.05)\n"
    )
    for send in (os.kill, os.killpg):
        words = hangscope("run", "-q", "--dir", "left", "--", sys.executable, "train.py")
        with here.started(words, first="ready\n") as job:
            send(job.pid, signal.SIGTERM)
            assert job.communicate(timeout=30)[0] == "TERM\n"


def test_the_job_keeps_its_terminal(here: Place) -> None:
    """isatty, /dev/tty, the foreground process group, and the keys that send signals."""
    program = (
        "import os, sys, time; tty = os.open('/dev/tty', os.O_RDWR); "
        "print(sys.stdin.isatty(), sys.stdout.isatty(), os.tcgetpgrp(tty) == os.getpgrp(), flush=True); "
        "print('typed', sys.stdin.readline(), flush=True); time.sleep(30)"
    )
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(here)
        words = watched("--", sys.executable, "-c", program)
        os.execve(words[0], words, {**here.environment, "RANK": "0"})
    seen = b""

    def read_until(text: bytes) -> None:
        nonlocal seen
        while text not in seen:
            assert select.select([terminal], [], [], 20)[0], seen
            seen += os.read(terminal, 4096)

    read_until(b"True True True\r\n")
    os.write(terminal, b"hello\n")
    read_until(b"typed hello")
    os.write(terminal, b"\x03")
    read_until(b"KeyboardInterrupt")
    with suppress(OSError):
        while os.read(terminal, 4096):
            pass
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGINT
    os.close(terminal)


@root_only
def test_nothing_stays_a_zombie_as_pid_1(here: Place) -> None:
    """Orphans of a container are reaped, and its exit code is the command's."""
    script = (
        "for n in 1 2 3; do (sleep 0.1 &); done; sleep 2; "
        "grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l; exit 3"
    )
    words = [
        "unshare",
        "--pid",
        "--fork",
        "--mount-proc",
        *hangscope("run", "-q", "--dir", "left", "--", "sh", "-c", script),
    ]
    done = here.ran(words)
    if "unshare" in done.stderr:
        pytest.skip(done.stderr)
    assert (done.returncode, done.stdout) == (3, "0\n"), done.stderr


def test_a_folder_that_others_may_write_into_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    problems: list[str] = []
    folder = make_anywhere(str(tmp_path / "open"), problems)
    assert folder.path != tmp_path / "open" and "other users may write" in problems[0]
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    assert not list((tmp_path / "open").iterdir())


@root_only
def test_a_folder_or_a_link_of_another_user_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir(0o700)
    (tmp_path / "ours").mkdir(0o700)
    (tmp_path / "link").symlink_to("ours")
    os.chown(tmp_path / "theirs", 12345, 12345)
    os.chown(tmp_path / "link", 12345, 12345, follow_symlinks=False)
    for name in ("theirs", "link"):
        with pytest.raises(PermissionError, match="another user"):
            make_private(tmp_path / name)


def test_nothing_in_the_folder_is_ever_imported(here: Place) -> None:
    for name in ("sitecustomize", "json", "threading", "hangscope_agent"):
        for folder in ("left", "left/agent"):
            (here / folder).mkdir(0o700, exist_ok=True)
            (here / folder / f"{name}.py").write_text("print('planted')\n")
    words = watched("--", sys.executable, "-c", "import json, sys; print(sys.path)")
    done = here.ran(words)
    assert "planted" not in done.stdout and str(here.left) not in done.stdout


def test_other_files_of_the_folder_cost_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be 100,000 of them: a look lists nothing."""
    (tmp_path / "capture_01").mkdir()
    monkeypatch.setattr(os, "scandir", None)
    monkeypatch.setattr(os, "listdir", None)
    assert RunFolder(tmp_path).captures() == 1


def test_ranks_print_into_their_own_streams(here: Place) -> None:
    """Name, mode, buffering and type are Python's own, and what is not flushed stays in the buffer."""
    program = "import sys; o = sys.stdout; print(o.name, o.mode, o.line_buffering, o.write_through, type(o), type(o.buffer), o.buffer.name, o is sys.__stdout__)"
    alone = subprocess.run(
        [sys.executable, "-c", program], env=here.environment, capture_output=True, text=True, check=True
    )
    words = watched("--", sys.executable, "-c", program)
    under = here.ran(words, {**here.environment, "RANK": "0"})
    assert under.stdout == alone.stdout
