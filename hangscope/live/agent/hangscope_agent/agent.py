"""The agent of one process: its thread, when it writes what, and the stacks and recorders that it writes."""

import atexit
import faulthandler
import os
import stat
import sys
import threading
import time
from typing import Any, List, Optional

from .descriptor import Descriptor
from .identity import Identity
from .output import Output
from .proc import STACK_SIGNAL, STACKS_NAME, children_of, is_rank, number, stacks_of
from .progress import Progress
from .recorders import initialized, recorders

INTERVAL = 1.0  # s between two looks
COPY = 0.2  # s between two copies of what was printed
LAST_COPY = 1.0  # s at most that the end of the program waits for the last one
STALL = 30.0  # s without progress until evidence is left unasked
STALL_GROWTH = 1.5  # the next unasked one takes so much longer than the longest pause that ended
WAIT_FOR_CHILD = 1.0  # s for a child that may be the rank itself
RECORDER_PATIENCE = 5.0  # s for the recorder to answer: on a device that hangs it may never do


class Agent:
    """The agent of one process."""

    def __init__(self, folder: str) -> None:
        self.identity = Identity(folder)
        self.trigger = os.path.join(folder, "trigger")
        self.output = Output(self.identity)
        self.progress = Progress(self.identity, self.output)
        self.asked = self.answers = 0
        self.patience = float(os.environ.get("HANGSCOPE_STALL", STALL))
        self.stalled: List[str] = []  # the files of a stall
        self._begin()
        if not self.identity.worker:
            self.identity.move_dumps()
            self.output.copy()
            atexit.register(self._finish)
            record_exception(self.identity)
            self._watch()

    def _begin(self) -> None:
        """Let the signal write all stacks to an anonymous file, without the GIL."""
        self.wake = threading.Event()  # a forked child's own: its parent's may be locked
        self.stacks: Optional[Descriptor] = None
        try:
            self.stacks = Descriptor(os.memfd_create(STACKS_NAME))
            faulthandler.register(STACK_SIGNAL, file=self.stacks.number, all_threads=True, chain=False)
        except Exception:
            pass  # no anonymous files here, or the signal is taken

    def _watch(self) -> None:
        try:
            self.progress.open()
        except Exception:
            pass
        threading.Thread(target=self._loop, name="hangscope", daemon=True).start()

    def after_fork(self) -> None:
        """Begin anew in a child: a rank's is its worker, another's may become a rank. It holds nothing of its parent's."""
        self.identity.pid = os.getpid()
        self.progress.close()
        if self.stacks is not None:
            self.stacks.close()
        self.output.stop()
        self._begin()
        if self.identity.global_rank() is not None:
            self.identity.worker = True
        else:
            self._watch()

    def _loop(self) -> None:
        """Copy what is printed, look for the trigger and at the progress, until the process ends."""
        try:
            if not self._is_ours():
                return self.output.stop()
            self.asked = self._trigger_time()
            if self.identity.rank is not None:
                self.identity.made(self.identity.of_attempt("dumps"))
        except Exception:
            return self.output.stop()
        looked = -INTERVAL
        while True:
            steps = [self.output.write]
            if time.monotonic() - looked >= INTERVAL:
                looked = time.monotonic()
                steps += [self._look_at_trigger, self._look_at_progress]
            for step in steps:
                try:
                    step()
                except Exception:
                    pass
            self.wake.wait(COPY)
            if self.wake.is_set() and self.output.is_copied:
                return  # the program ends

    def _is_ours(self) -> bool:
        """Whether the folder is there, and nobody else could have put something into it."""
        found = os.stat(self.identity.folder)
        if not stat.S_ISDIR(found.st_mode):
            return False
        private = found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        return private or "HANGSCOPE_RUN" not in os.environ

    def _trigger_time(self) -> int:
        """Return when the trigger was touched last, 0 if it never was."""
        try:
            return os.stat(self.trigger).st_mtime_ns
        except OSError:
            return 0

    def _look_at_trigger(self) -> None:
        touched = self._trigger_time()
        if touched == self.asked:
            return
        self.asked = touched
        try:
            with open(self.trigger) as file:
                told = number(file.read(20).strip())
        except OSError:
            told = None
        self.answers = self.answers + 1 if told is None else told
        leave(self.identity, "capture_%02d" % self.answers)

    def _look_at_progress(self) -> None:
        """Note how far the process has come; leave evidence if it has stalled for long, and remove it when it goes on."""
        if self.progress.look():
            for path in self.stalled:
                try:
                    os.unlink(path)
                except OSError:
                    pass
            self.stalled = []
        limit = max(self.patience, STALL_GROWTH * self.progress.longest)
        if self.progress.still >= limit and not self.stalled and self.identity.global_rank() is not None:
            self.stalled = leave(self.identity, self.identity.of_attempt("stall")) or [""]

    def _finish(self) -> None:
        """Have the last output copied before the program ends; a disk that hangs is not waited for."""
        try:
            if os.getpid() == self.identity.pid:
                self.wake.set()
                deadline = time.monotonic() + LAST_COPY
                while not self.output.is_copied and time.monotonic() < deadline:
                    time.sleep(0.002)
        except Exception:
            pass


def leave(identity: Identity, where: str) -> List[str]:
    """Write this process's stacks and its recorder into a folder of the run, and return the files."""
    known, pid, rank = initialized(), identity.pid, identity.global_rank()
    if rank is None:
        return []
    folder = identity.made(where)
    target = os.path.join(folder, "stack_rank_%d.txt" % rank)
    if known is None and children_of(pid):
        time.sleep(WAIT_FOR_CHILD)  # one of them may be the rank, and knows more
        if os.path.exists(target):
            return []
    unfinished = os.path.join(folder, ".stack_rank_%d.%d" % (rank, pid))
    with open(unfinished, "w") as file:
        file.write("Process %d: rank %d\n\n" % (pid, rank))  # it may be pasted without its name
        file.flush()
        faulthandler.dump_traceback(file, all_threads=True)
        for child in children_of(pid):
            text = "" if is_rank(child) else stacks_of(child)
            if text:
                file.write("\nProcess %d: worker of rank %d\n%s" % (child, rank, text))
    written = leave_recorders(folder, known[0], pid) if known is not None else []
    os.rename(unfinished, target)
    return [target, *written]


def leave_recorders(folder: str, rank: int, pid: int) -> List[str]:
    """Write what each recorder of this process holds, and return the files; a device that hangs is not waited for."""
    written: List[str] = []

    def write() -> None:
        for name, dump in recorders():
            try:
                data = dump()
                if b"record_id" not in data and b"pg_config" not in data:
                    continue
                target = os.path.join(folder, "%s_%d" % (name, rank))
                unfinished = os.path.join(folder, ".%s_%d.%d" % (name, rank, pid))
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


def record_exception(identity: Identity) -> None:
    """Leave the recorders at an uncaught exception."""
    before = sys.excepthook

    def hook(kind: Any, error: Any, traceback: Any) -> None:
        try:
            known = initialized()
            if known is not None and issubclass(kind, Exception) and os.getpid() == identity.pid:
                leave_recorders(identity.made(identity.of_attempt("at_end")), known[0], identity.pid)
        except Exception:
            pass
        before(kind, error, traceback)

    sys.excepthook = hook
