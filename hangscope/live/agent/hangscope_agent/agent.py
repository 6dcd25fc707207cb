"""The agent of one process: its thread, and when it writes what."""

import atexit
import faulthandler
import os
import stat
import threading
import time
from typing import List, Optional

from .descriptor import Descriptor
from .evidence import leave, record_exception
from .identity import Identity
from .output import Output
from .proc import STACK_SIGNAL, STACKS_NAME, number
from .progress import Progress

INTERVAL = 1.0  # s between two looks
COPY = 0.2  # s between two copies of what was printed
LAST_COPY = 1.0  # s at most that the end of the program waits for the last one
STALL = 30.0  # s without progress until evidence is left unasked
STALL_GROWTH = 1.5  # the next unasked one takes so much longer than the longest pause that ended


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
