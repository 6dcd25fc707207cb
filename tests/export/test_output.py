"""What a report or a pack is written over, into, or not at all."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangscope.errors import UsageError
from hangscope.export import output
from hangscope.export.output import write_file, write_report
from tests.conftest import Run

REPORT = '<meta name="generator" content="hangscope 1">\n'


def device(path: Path, kind: int, major: int, minor: int) -> Path:
    """Make a device, which only root can, and where devices are allowed."""
    try:
        os.mknod(path, 0o666 | kind, os.makedev(major, minor))
        path.open("wb").close() if kind == stat.S_IFCHR else None
    except OSError as error:
        pytest.skip(f"no device can be made here: {error}")
    return path


@pytest.fixture
def null(tmp_path: Path) -> Path:
    """Return a node like /dev/null."""
    return device(tmp_path / "null", stat.S_IFCHR, 1, 3)


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    return path


def test_a_device_is_written_into_and_stays_one(null: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(null)
    for path in (null, link):
        for force in (False, True):
            write_report(path, REPORT, force=force)
    assert stat.S_ISCHR(os.lstat(null).st_mode) and link.is_symlink()
    assert {p.name for p in tmp_path.iterdir()} == {"null", "link"}


def test_the_command_and_the_pack_leave_a_device_as_it_is(inside: Run, hang: Path, null: Path) -> None:
    assert inside("analyze", hang, "-o", null, "--json", null).returncode == 0
    assert inside("analyze", hang, "-o", null, "--force").returncode == 0
    assert inside("pack", hang, "-o", null).returncode == 0
    assert stat.S_ISCHR(os.lstat(null).st_mode)


def test_a_device_that_is_full_says_so(inside: Run, hang: Path, tmp_path: Path) -> None:
    full = device(tmp_path / "full", stat.S_IFCHR, 1, 7)
    result = inside("analyze", hang, "-o", full)
    assert result.returncode == 1 and "No space left on device" in result.stderr
    assert result.stdout.startswith("hang[") and stat.S_ISCHR(os.lstat(full).st_mode)


def test_a_pipe_without_a_reader_is_refused_at_once(inside: Run, hang: Path, fifo: Path) -> None:
    with pytest.raises(UsageError, match="nobody reads"):
        write_report(fifo, REPORT, force=True)
    result = inside("analyze", hang, "-o", fifo, "--json", fifo)
    assert result.returncode == 1 and result.stderr.count("nobody reads") == 2
    assert result.stdout.startswith("hang[") and stat.S_ISFIFO(os.lstat(fifo).st_mode)


def test_a_pipe_with_a_reader_gets_the_report(fifo: Path) -> None:
    text = REPORT + "x" * 300_000  # more than a pipe holds
    copy = fifo.with_name("copy")
    with copy.open("wb") as out, subprocess.Popen(["cat", fifo], stdout=out) as reader:
        for patience in range(50, -1, -1):
            try:
                write_report(fifo, text)
                break
            except UsageError:  # it has not begun to read yet
                if not patience:
                    raise
                time.sleep(0.1)
        reader.wait(10)
    assert copy.read_text() == text and stat.S_ISFIFO(os.lstat(fifo).st_mode)


def test_a_pipe_whose_reader_does_not_read_is_given_up(fifo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "STALLED", 0.1)
    opened = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(TimeoutError, match="nobody has read"):
            write_report(fifo, "x" * 300_000)
    finally:
        os.close(opened)


def test_a_reader_that_has_gone_is_an_error_of_the_system(fifo: Path) -> None:
    opened = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
    try:
        threading.Timer(0.2, os.close, [opened]).start()
        with pytest.raises(OSError):
            write_report(fifo, "x" * 300_000)
    finally:
        os.close(writer)


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[Path]:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        yield tmp_path / "socket"


def test_a_socket_is_refused(listening: Path) -> None:
    with pytest.raises(UsageError, match="is a socket"):
        write_report(listening, REPORT, force=True)
    assert stat.S_ISSOCK(os.lstat(listening).st_mode)


def test_a_block_device_is_refused(tmp_path: Path) -> None:
    disk = device(tmp_path / "disk", stat.S_IFBLK, 240, 250)  # a number for local use: no driver has it
    with pytest.raises(UsageError, match="block device"):
        write_report(disk, REPORT, force=True)
    assert stat.S_ISBLK(os.lstat(disk).st_mode)


@pytest.mark.parametrize("content", ["", "years of work"])
def test_a_file_that_is_not_ours_needs_force(tmp_path: Path, content: str) -> None:
    path = tmp_path / "file"
    path.write_text(content)
    with pytest.raises(UsageError, match="is no report"):
        write_report(path, REPORT)
    assert path.read_text() == content
    write_report(path, REPORT, force=True)
    write_report(path, REPORT + "again")
    assert path.read_text() == REPORT + "again"


def test_a_link_keeps_its_place_and_its_target_is_judged(tmp_path: Path) -> None:
    target, link = tmp_path / "shared.html", tmp_path / "here.html"
    target.write_text(REPORT)
    link.symlink_to(target)
    write_report(link, REPORT + "new")
    assert link.is_symlink() and target.read_text() == REPORT + "new"
    target.write_text("mine")
    with pytest.raises(UsageError, match="is no report"):
        write_report(link, REPORT)
    target.unlink()
    with pytest.raises(UsageError, match="link to nothing"):
        write_report(link, REPORT, force=True)


def test_what_a_failing_writer_began_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text(REPORT)

    def fail(out: object) -> None:
        raise ValueError("half way")

    with pytest.raises(ValueError, match="half way"):
        write_file(path, fail, lambda path: True, "anything")
    assert path.read_text() == REPORT and [p.name for p in tmp_path.iterdir()] == ["file"]


@pytest.mark.slow
def test_the_names_of_open_files_stay_what_they_are(
    environment: dict[str, str], hang: Path, tmp_path: Path
) -> None:
    """`-o /dev/stdout > file`: the name is a link by way of /proc to that file, and replacing it would lose both."""
    before = os.lstat("/dev/stdout").st_mode
    with (tmp_path / "all").open("wb") as out:
        code = subprocess.run(
            [sys.executable, "-m", "hangscope", "analyze", str(hang), "-o", "/dev/stdout", "-q"],
            stdout=out,
            stderr=subprocess.PIPE,
            env=environment,
            cwd=tmp_path,
            timeout=60,
            check=False,
        ).returncode
    written = (tmp_path / "all").read_text()
    assert code == 0 and written.startswith("hang[") and written.rstrip().endswith("</html>")
    assert os.lstat("/dev/stdout").st_mode == before and [p.name for p in tmp_path.iterdir()] == ["all"]


def test_no_folder_is_made_for_a_report(inside: Run, hang: Path, tmp_path: Path) -> None:
    done = inside("analyze", hang, "-o", tmp_path / "absent" / "x.html")
    assert done.returncode == 1 and "No such file or directory" in done.stderr
    assert not (tmp_path / "absent").exists()
