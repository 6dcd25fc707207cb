"""A hostile job: `hangscope capture` reads, writes and asks nothing that the job's own user could not, and never without a limit."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from hangscope.live.agent.hangscope_agent import proc
from hangscope.live.folder import RunFolder
from hangscope.live.look import debug_server
from hangscope.live.look.capture import capture
from hangscope.live.look.processes import Process, job_of
from tests.live.jobs import hangscope, started, until

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")


@pytest.fixture
def folder() -> Iterator[Path]:
    """Yield a folder that every user may enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="hangscope-test-") as name:
        Path(name).chmod(0o777)
        yield Path(name)


def hostile_rank(folder: Path, environment: dict[str, str], program: str) -> subprocess.Popen[bytes]:
    """Start a rank of another user, and return it when it is ready."""
    job = folder / "job"
    job.mkdir()
    os.chown(job, NOBODY, NOBODY)
    rank = subprocess.Popen(
        ["/bin/sh", "-c", f"cd {job}; {program} touch ready; sleep 600 & wait"],
        env={"RANK": "0", "WORLD_SIZE": "1", "PATH": os.environ["PATH"], **environment},
        user=NOBODY, group=NOBODY, extra_groups=[], start_new_session=True,
    )  # fmt: skip
    until((job / "ready").exists)
    return rank


def end(rank: subprocess.Popen[bytes]) -> None:
    """End a rank and all that it has started."""
    os.killpg(rank.pid, signal.SIGKILL)
    rank.wait()


FOLLOWED = "mkfifo dump_pipe0.pipe; (read word < dump_pipe0.pipe; ln -s {secret} dump_0) &"


@as_root
@pytest.mark.parametrize("attack", ["a link for a dump", "a link for a trigger", "a folder of its choice"])
def test_root_becomes_the_user_of_the_ranks(attack: str, folder: Path, environment: dict[str, str]) -> None:
    secret, job = folder / "secret", folder / "job"
    secret.write_text("for root's eyes")
    secret.chmod(0o600)
    program, settings = "", {"HANGSCOPE_DIR": str(job)}
    if attack == "a link for a dump":
        program = FOLLOWED.format(secret=secret)
        settings = {
            "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{job}/dump_pipe",
            "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": f"{job}/dump_",
        }
    elif attack == "a folder of its choice":
        settings = {"HANGSCOPE_DIR": str(folder / "new")}
    rank = hostile_rank(folder, settings, program)
    left = folder / "left"
    try:
        link = f'ln -s {secret} {job}/.trigger.$$; exec "$0" "$@"'
        words = ["bash", "-c", link, *hangscope("capture", str(rank.pid))]
        where = [] if attack != "a link for a dump" else ["--dir", str(left)]
        done = subprocess.run(
            [*words, *where], cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False
        )  # fmt: skip
    finally:
        end(rank)
    assert secret.read_text() == "for root's eyes", done.stderr
    assert not (folder / "new").exists()
    kept = [path for path in folder.rglob("capture_*/*") if path.is_file()]
    assert kept, done.stderr
    assert not any("root's eyes" in path.read_text() for path in kept)
    assert {path.stat().st_uid for path in kept} == {NOBODY}


@as_root
def test_a_job_of_several_users_is_refused(
    folder: Path, environment: dict[str, str], run: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    rank = hostile_rank(folder, {}, "")
    with subprocess.Popen(["sleep", "60"], env={"RANK": "1", "PATH": os.environ["PATH"]}) as other:
        done = run("capture", rank.pid, other.pid)
        other.kill()
        end(rank)
    assert done.returncode == 2 and "the ranks belong to 2 users" in done.stderr


def test_temporary_names_cannot_be_foreseen(tmp_path: Path) -> None:
    from hangscope.live.folder import leave

    (tmp_path / "victim").write_text("kept")
    (tmp_path / f".trigger.{os.getpid()}").symlink_to(tmp_path / "victim")
    leave(tmp_path / "trigger", b"1")
    assert (tmp_path / "victim").read_text() == "kept" and (tmp_path / "trigger").read_text() == "1"


FORGED = """
import os, signal, time
stacks = os.memfd_create("hangscope-stacks")
signal.signal(signal.SIGRTMIN + 11, lambda *_: os.ftruncate(stacks, 64 << 20))
print("ready", flush=True)
time.sleep(600)
"""


def test_a_forged_file_of_stacks_is_read_up_to_a_size() -> None:
    with subprocess.Popen([sys.executable, "-c", FORGED], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        text = proc.stacks_of(process.pid)
        process.kill()
    assert len(text) == proc.MOST_STACKS


PAGE = """
import http.server, sys
page = b"Torch Distributed Debug Server" + b"".join(
    b"<h2>Rank %d: http://localhost:%s/handler/dump_traceback?</h2>" % (r, sys.argv[1].encode()) for r in range(2000)
)

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(page)

server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
print("ready", flush=True)
server.serve_forever()
"""


def test_a_page_of_invented_ranks_asks_no_other_port(tmp_path: Path) -> None:
    asked: list[float] = []
    with socket.socket() as victim:
        victim.bind(("127.0.0.1", 0))
        victim.listen(64)
        victim.settimeout(0.2)
        over = threading.Event()

        def count() -> None:
            while not over.is_set():
                try:
                    victim.accept()[0].close()
                    asked.append(time.monotonic())
                except OSError:
                    continue

        counter = threading.Thread(target=count)
        counter.start()
        rank = subprocess.Popen(["sleep", "60"])
        words = [sys.executable, "-c", PAGE, str(victim.getsockname()[1])]
        with started(words, tmp_path, dict(os.environ)) as server:
            assert server.stdout is not None and server.stdout.readline() == "ready\n"
            processes = [
                Process(rank.pid, 0, None, 1, ("python",), uid=os.geteuid()),
                Process(server.pid, 0, rank.pid, 1, ("python",), uid=os.geteuid()),
            ]
            debug_server.ask_debug_server(processes, tmp_path)
        over.set()
        counter.join()
        rank.kill()
        rank.wait()
    assert asked == []


def served(answer: Callable[[socket.socket], None]) -> int:
    """Answer one connection in a thread, and return the port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with listener, listener.accept()[0] as connection:
            connection.recv(1000)
            with suppress(OSError):
                answer(connection)

    threading.Thread(target=serve, daemon=True).start()
    return int(listener.getsockname()[1])


def test_a_server_that_trickles_has_one_deadline() -> None:
    def trickle(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n")
        for _ in range(100):
            connection.sendall(b"x")
            time.sleep(0.1)

    begun = time.monotonic()
    assert debug_server._Client(begun + 0.5).answer(served(trickle), "GET /stacks") == b""
    assert time.monotonic() - begun < 5


def test_a_redirect_is_not_followed_and_a_flood_is_cut() -> None:
    elsewhere = b"HTTP/1.0 302 Found\r\nLocation: http://localhost:1/\r\n\r\nText"
    client = debug_server._Client(time.monotonic() + 20, left=1 << 20)
    assert client.answer(served(lambda connection: connection.sendall(elsewhere)), "GET /stacks") == b""
    flood = b"HTTP/1.0 200 OK\r\n\r\n" + bytes(2 << 20)
    assert client.answer(served(lambda connection: connection.sendall(flood)), "GET /stacks") == b""
    good = debug_server._Client(time.monotonic() + 20)
    assert good.answer(served(lambda c: c.sendall(b"HTTP/1.0 200 OK\r\n\r\nText")), "GET /stacks") == b"Text"


SILENT = """
import json, os, time
status = os.memfd_create("hangscope-status")
told = {"rank": 1, "world_size": 2, "by_calls": True, "changes": 28, "printed": 0, "moves": 9, "work": ""}
os.write(status, json.dumps(told).encode())
print("ready", flush=True)
time.sleep(600)
"""


def test_an_agent_that_does_not_answer_has_calls_all_the_same(tmp_path: Path) -> None:
    settings = {**os.environ, "RANK": "1", "HANGSCOPE_DIR": str(tmp_path)}
    with started([sys.executable, "-c", SILENT], tmp_path, settings) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        taken = capture(RunFolder(tmp_path), job_of([process.pid]), hurry=lambda: True)
    assert taken.missing[-1].startswith("no recorder of rank 1: its agent did not answer within 4 s")


def test_what_the_kernel_says_of_a_stopped_rank_is_kept(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"], env={"RANK": "1", "PATH": os.environ["PATH"]}) as process:
        process.send_signal(signal.SIGSTOP)
        until(lambda: proc.stat_of(process.pid)[0] == "T")
        capture(RunFolder(tmp_path), job_of([process.pid]), hurry=lambda: True)
        process.kill()
    (kept,) = tmp_path.glob("capture_01/kernel_rank_1.txt")
    assert kept.read_text().startswith(f"process {process.pid} is stopped\n")
