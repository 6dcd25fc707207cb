"""The agent of one process: its thread, and what it writes when."""

import atexit
import faulthandler
import json
import os
import signal
import socket
import stat
import sys
import threading
import time
from typing import Any, Dict, List, Optional

from .descriptor import Descriptor
from .printed import Printed
from .proc import (
    STACK_SIGNAL,
    STACKS_NAME,
    STATUS_NAME,
    children_of,
    launches,
    number,
    process_of,
    rank_of,
    stacks_of_children,
)
from .recorders import calls_are_recorded, calls_were_made, frontier, initialized, recorders, will_join
from .work import where_is_main_thread

INTERVAL = 1.0  # s between two looks
COPY = 0.2  # s between two copies of what was printed
LAST_COPY = 1.0  # s at most that the end of the program waits for the last one
STALL = 30.0  # s without a call until evidence is left unasked
STALL_GROWTH = 1.5  # the next unasked one takes so much longer than the longest pause that ended
RECORDER_PATIENCE = 5.0  # s for the recorder to answer: on a device that hangs it may never do
STATUS_SIZE = 800  # bytes


class Agent:
    """The agent of one process."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.rank: Optional[int] = None
        self.restart = number(os.environ.get("TORCHELASTIC_RESTART_COUNT")) or 0
        self.worker = False  # of a rank: started by it, without a process group of its own
        self.launcher = False
        self.asked = 0
        self.answers = 0
        self.changes = self.moves = self.printed = self.heard = 0
        self.token: Any = None
        self.place: Any = None  # of the main thread
        self.since = time.monotonic()
        self.longest = 0.0
        self.patience = float(os.environ.get("HANGSCOPE_STALL", STALL))
        self.stalled: List[str] = []
        self.status: Optional[Descriptor] = None
        self.stacks: Optional[Descriptor] = None
        self.streams: Dict[str, Printed] = {}
        self.wake = threading.Event()
        self.pid = os.getpid()
        try:
            environment, command = process_of(self.pid)
            self.rank = rank_of(environment, command)
            self.launcher = launches(command)
            if self.rank is not None:
                above, words = process_of(os.getppid())
                self.worker = (
                    above.get("HANGSCOPE_DIR") == environment.get("HANGSCOPE_DIR", folder)
                    and os.path.basename(words[0]).startswith("python")
                    and rank_of(above, words) == self.rank
                )
        except Exception:
            self.rank = None
        self.listen()
        if not self.worker:
            self.move_dumps()
            self.copy_output()
            self.record_exception()
            self.watch()

    def listen(self) -> None:
        """Let the signal write all stacks to an anonymous file, without the GIL."""
        try:
            self.stacks = Descriptor(os.memfd_create(STACKS_NAME))
            faulthandler.register(STACK_SIGNAL, file=self.stacks.number, all_threads=True, chain=False)
        except Exception:
            pass  # no anonymous files here, or the signal is taken

    def watch(self) -> None:
        """Start the thread."""
        try:
            self.status = Descriptor(os.memfd_create(STATUS_NAME))
        except Exception:
            self.status = None
        threading.Thread(target=self.loop, name="hangscope", daemon=True).start()

    def after_fork(self) -> None:
        """Begin anew in a child: a rank's is its worker, another's may become a rank. It holds nothing of its parent's."""
        self.pid = os.getpid()
        self.wake = threading.Event()
        for kept in (self.status, self.stacks):
            if kept is not None:
                kept.close()
        for stream in self.streams.values():
            stream.stop()
        self.status = self.stacks = None
        self.streams = {}
        self.listen()
        if self.rank is not None or initialized() is not None:
            self.worker = True
        else:
            self.watch()

    def loop(self) -> None:
        """Copy what is printed, look for the trigger and at the recorder, until the process ends."""
        try:
            if not self.is_ours():
                self.stop()
                return
            self.asked = self.trigger_time()
            if self.rank is not None:
                os.makedirs(os.path.join(self.folder, self.of_attempt("dumps")), mode=0o700, exist_ok=True)
        except Exception:
            return self.stop()
        looked = -INTERVAL
        while True:
            looks = [self.write_output]
            if time.monotonic() - looked >= INTERVAL:
                looked = time.monotonic()
                looks += [self.look_at_trigger, self.look_at_recorder]
            for look in looks:
                try:
                    look()
                except Exception:
                    pass
            self.wake.wait(COPY)
            if self.wake.is_set() and self.is_copied():
                return  # the program ends

    def is_ours(self) -> bool:
        """Whether the folder is there, and nobody else could have put something into it."""
        found = os.stat(self.folder)
        if not stat.S_ISDIR(found.st_mode):
            return False
        private = found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        return private or "HANGSCOPE_RUN" not in os.environ

    def stop(self) -> None:
        """Leave the process as it would be without an agent."""
        for stream in self.streams.values():
            stream.stop()
        self.streams = {}

    def trigger_time(self) -> int:
        """Return when the trigger was touched last, 0 if it never was."""
        try:
            return os.stat(os.path.join(self.folder, "trigger")).st_mtime_ns
        except OSError:
            return 0

    def look_at_trigger(self) -> None:
        """Leave what the trigger asks for."""
        touched = self.trigger_time()
        if touched == self.asked:
            return
        self.asked = touched
        try:
            with open(os.path.join(self.folder, "trigger")) as file:
                told = number(file.read(20).strip())
        except OSError:
            told = None
        self.answers = self.answers + 1 if told is None else told
        self.leave("capture_%02d" % self.answers)

    def of_attempt(self, where: str) -> str:
        """Return a folder for what a rank writes unasked, one for each attempt where torchrun may restart the ranks."""
        restarts = number(os.environ.get("TORCHELASTIC_MAX_RESTARTS")) or 0
        return os.path.join(where, "restart_%d" % self.restart) if restarts else where

    def move_dumps(self) -> None:
        """Have torch, which the program has not loaded yet, write the dumps of each attempt into a folder of their own."""
        dumps, own = (os.path.join(self.folder, name, "") for name in ("dumps", self.of_attempt("dumps")))
        for name, value in list(os.environ.items()) if own != dumps and self.rank is not None else ():
            if value.startswith(dumps) and "/" not in value[len(dumps) :]:
                os.environ[name] = own + value[len(dumps) :]

    def leave(self, where: str) -> List[str]:
        """Write this process's stacks and its recorder, and return the files."""
        known = initialized()
        rank = known[0] if known else self.rank
        if rank is None:
            return []
        folder = os.path.join(self.folder, where)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        target = os.path.join(folder, "stack_rank_%d.txt" % rank)
        if known is None and children_of(self.pid):
            time.sleep(INTERVAL)  # one of them may be the rank, and knows more
            if os.path.exists(target):
                return []
        unfinished = os.path.join(folder, ".stack_rank_%d.%d" % (rank, self.pid))
        with open(unfinished, "w") as file:
            file.write("Process %d: rank %d\n\n" % (self.pid, rank))  # it may be pasted without its name
            file.flush()
            faulthandler.dump_traceback(file, all_threads=True)
            for pid, text in stacks_of_children(self.pid):
                file.write("\nProcess %d: worker of rank %d\n%s" % (pid, rank, text))
        written = self.leave_recorder(folder, known[0]) if known is not None else []
        os.rename(unfinished, target)
        return [target, *written]

    def leave_recorder(self, folder: str, rank: int) -> List[str]:
        """Write what each recorder of this process holds, and return the files; a device that hangs is not waited for."""
        written: List[str] = []

        def write() -> None:
            for name, dump in recorders():
                try:
                    data = dump()
                    if b"record_id" not in data and b"pg_config" not in data:
                        continue
                    target = os.path.join(folder, "%s_%d" % (name, rank))
                    unfinished = os.path.join(folder, ".%s_%d.%d" % (name, rank, self.pid))
                    with open(unfinished, "wb") as file:
                        file.write(data)
                    os.rename(unfinished, target)
                    written.append(target)
                except Exception:
                    pass

        job = threading.Thread(target=write, daemon=True)
        job.start()
        job.join(RECORDER_PATIENCE)
        return written

    def look_at_recorder(self) -> None:
        """Tell how far the rank has come; leave evidence if it has stalled for long."""
        known = initialized()
        place, work, at = where_is_main_thread()
        if place != self.place:
            self.place = place
            self.moves += 1
        tokens = [frontier(dump) for _, dump in recorders()] if known else []
        has_calls = any(tokens)
        by_calls = (has_calls and calls_are_recorded()) if known else will_join()
        token = tokens if has_calls else [place, sum(stream.count for stream in self.streams.values())]
        now = time.monotonic()
        if token != self.token:
            if self.token is not None:
                self.longest = max(self.longest, now - self.since)
            self.token, self.since = token, now
            if known and by_calls and (self.changes or calls_were_made()):
                self.changes += 1
            for path in self.stalled:
                try:
                    os.unlink(path)
                except OSError:
                    pass
            self.stalled = []
        if known or self.rank is not None:
            rank, world = known or (self.rank, 0)
            self.tell(rank=rank, world=world, by_calls=by_calls, work=work, at=at[:200])
            if now - self.since >= max(self.patience, STALL_GROWTH * self.longest) and not self.stalled:
                self.stalled = self.leave(self.of_attempt("stall")) or [""]

    def tell(self, **statements: Any) -> None:
        """Put facts where `hangscope run` finds them."""
        place = -1 if self.status is None else self.status.get()
        if place < 0:
            return
        total = sum(stream.count for stream in self.streams.values())
        if statements["work"] != "import":  # what a library says while it is loaded is no progress
            self.printed += total - self.heard
        self.heard = total
        saves = signal.getsignal(signal.SIGTERM) not in (signal.SIG_DFL, signal.SIG_IGN, None)
        told = {
            "changes": self.changes,
            "moves": self.moves,
            "printed": self.printed,
            "saves": saves,
            **statements,
        }
        os.pwrite(place, json.dumps(told).encode().ljust(STATUS_SIZE), 0)

    def copy_output(self) -> None:
        """Copy what is printed."""
        for name, kind in (("stdout", "out"), ("stderr", "err")):
            try:
                self.streams[kind] = Printed(getattr(sys, name))
            except Exception:
                pass  # there is none, or it is nobody's to change
        atexit.register(self.finish)

    def write_output(self) -> None:
        """Write the copies to where they belong, as soon as that is known."""
        name = self.name_of_copy()
        for kind, stream in self.streams.items() if name else ():
            if not stream.is_open:
                path = os.path.join(self.folder, name + "." + kind)
                try:
                    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
                    stream.open(path)
                except OSError:
                    return self.stop()
            stream.write()

    def name_of_copy(self) -> str:
        """Return where the copies go, "" while that is not known."""
        known = initialized()
        rank = known[0] if known else self.rank
        if rank is not None:
            return "logs/restart_%d/rank_%d" % (self.restart, rank)
        if self.launcher:
            return "launcher/%s.%d" % (socket.gethostname().split(".")[0], self.pid)
        return ""

    def is_copied(self) -> bool:
        """Whether all that was printed is in its file, or will never be."""
        return all(each.is_written for each in self.streams.values()) or not self.name_of_copy()

    def finish(self) -> None:
        """Have the last output copied before the program ends; a disk that hangs is not waited for."""
        try:
            if os.getpid() == self.pid:
                self.wake.set()
                deadline = time.monotonic() + LAST_COPY
                while not self.is_copied() and time.monotonic() < deadline:
                    time.sleep(0.002)
        except Exception:
            pass

    def record_exception(self) -> None:
        """Leave the recorder at an uncaught exception."""
        before = sys.excepthook

        def hook(kind: Any, error: Any, traceback: Any) -> None:
            try:
                known = initialized()
                if known is not None and issubclass(kind, Exception) and os.getpid() == self.pid:
                    folder = os.path.join(self.folder, self.of_attempt("at_end"))
                    os.makedirs(folder, mode=0o700, exist_ok=True)
                    self.leave_recorder(folder, known[0])
            except Exception:
                pass
            before(kind, error, traceback)

        sys.excepthook = hook
