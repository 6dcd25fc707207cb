"""The agent of one process: its thread, and what it leaves when."""

import faulthandler
import json
import os
import signal
import sys
import threading
import time
from typing import Any, List, Optional

from .doubled import Doubled, text_of
from .proc import (
    STACK_SIGNAL,
    STACKS_NAME,
    STATUS_NAME,
    children_of,
    process_of,
    rank_of,
    stacks_of_children,
)
from .recorders import calls_are_recorded, calls_were_made, frontier, initialized, recorders, will_join
from .work import where_is_main_thread

INTERVAL = 1.0  # s between two looks
STALL = 30.0  # s without a call until evidence is left unasked
STALL_GROWTH = 1.5  # the next unasked one takes so much longer than the longest pause that ended
RECORDER_PATIENCE = 5.0  # s for the recorder to answer: on a device that hangs it may never do


class Agent:
    """The agent of one process."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.rank: Optional[int] = None
        self.worker = False  # of a rank: started by it, without a process group of its own
        self.asked = self.trigger_time()
        self.answers = 0
        self.changes = self.moves = self.printed = self.heard = 0
        self.token: Any = None
        self.place: Any = None  # of the main thread
        self.since = time.monotonic()
        self.longest = 0.0
        self.patience = float(os.environ.get("HANGSCOPE_STALL", STALL))
        self.stalled: List[str] = []
        self.status = self.at_end = -1
        self.pid = os.getpid()
        self.kept: List[Any] = []  # files that nothing may close
        self.doubled: List[Doubled] = []
        try:
            environment, command = process_of(self.pid)
            self.rank = rank_of(environment, command)
            if self.rank is not None:
                above, words = process_of(os.getppid())
                self.worker = (
                    above.get("HANGSCOPE_DIR") == folder
                    and os.path.basename(words[0]).startswith("python")
                    and rank_of(above, words) == self.rank
                )
        except Exception:
            self.rank = None
        self.listen()
        if self.rank is not None and not self.worker:
            self.record_output()
            self.record_end()
        if not self.worker:
            self.watch()

    def listen(self) -> None:
        """Let the signal write all stacks to an anonymous file, without the GIL."""
        try:
            file = os.fdopen(os.memfd_create(STACKS_NAME), "wb", 0)
            faulthandler.register(STACK_SIGNAL, file=file, all_threads=True, chain=False)
            self.kept.append(file)
        except Exception:
            pass  # no anonymous files here, or the signal is taken

    def watch(self) -> None:
        """Start the thread."""
        try:
            self.status = os.memfd_create(STATUS_NAME)
        except Exception:
            self.status = -1
        threading.Thread(target=self.loop, name="hangscope", daemon=True).start()

    def after_fork(self) -> None:
        """Begin anew in a child: a rank's is its worker, another's may become a rank."""
        self.pid = os.getpid()
        if self.status >= 0:
            os.close(self.status)
        self.status = -1
        self.kept = self.kept[1:] if self.kept else []
        self.listen()
        if self.rank is not None or initialized() is not None:
            self.worker = True
            self.end_recording_end()
        else:
            self.watch()

    def loop(self) -> None:
        """Look for the trigger and at the recorder, until the process ends."""
        while True:
            time.sleep(INTERVAL)
            for look in (self.look_at_trigger, self.look_at_recorder):
                try:
                    look()
                except Exception:
                    pass

    def trigger_time(self) -> int:
        """Return when the trigger was touched last, 0 where it was never."""
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
                told = file.read(20).strip()
        except OSError:
            told = ""
        self.answers = int(told) if told.isdigit() else self.answers + 1
        self.leave("capture_%02d" % self.answers)

    def leave(self, where: str) -> List[str]:
        """Write this process's stacks and its recorder, and return the files."""
        known = initialized()
        rank = known[0] if known else self.rank
        if rank is None:
            return []
        folder = os.path.join(self.folder, where)
        os.makedirs(folder, exist_ok=True)
        target = os.path.join(folder, "stack_rank_%d.txt" % rank)
        if known is None and children_of(self.pid):
            time.sleep(INTERVAL)  # one of them may be the rank, and knows more
            if os.path.exists(target):
                return []
        unfinished = os.path.join(folder, ".stack_rank_%d.%d" % (rank, self.pid))
        with open(unfinished, "w") as file:
            faulthandler.dump_traceback(file, all_threads=True)
            for pid, text in stacks_of_children(self.pid):
                file.write("\nProcess %d: worker of rank %d\n%s" % (pid, rank, text))
        written: List[str] = []
        if known is not None:
            job = threading.Thread(target=self.leave_recorder, args=(folder, rank, written), daemon=True)
            job.start()
            job.join(RECORDER_PATIENCE)
        os.rename(unfinished, target)
        return [target, *written]

    def leave_recorder(self, folder: str, rank: int, written: List[str]) -> None:
        """Write what each recorder of this process holds."""
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

    def look_at_recorder(self) -> None:
        """Tell how far the rank has come; leave evidence where it has stood still for long."""
        known = initialized()
        place, work = where_is_main_thread()
        if place != self.place:
            self.place = place
            self.moves += 1
        if known is None:
            if self.rank is not None:
                self.tell(rank=self.rank, world=0, by_calls=will_join(), work=work)
            return
        token = [frontier(dump) for _, dump in recorders()]
        by_calls = any(token) and calls_are_recorded()
        now = time.monotonic()
        if token != self.token:
            if self.token is not None:
                self.longest = max(self.longest, now - self.since)
            self.token, self.since = token, now
            if by_calls and (self.changes or calls_were_made()):
                self.changes += 1
            for path in self.stalled:
                try:
                    os.unlink(path)
                except OSError:
                    pass
            self.stalled = []
        self.tell(rank=known[0], world=known[1], by_calls=by_calls, work=work)
        if (
            now - self.since >= max(self.patience, STALL_GROWTH * self.longest)
            and not self.stalled
            and any(token)
        ):
            self.stalled = self.leave("stall") or [""]

    def tell(self, **statements: Any) -> None:
        """Put facts where `hangscope run` finds them."""
        if self.status >= 0:
            total = sum(raw.count for raw in self.doubled)
            if statements["work"] != "import":  # what a library says while it is loaded is no progress
                self.printed += total - self.heard
            self.heard = total
            told = {"changes": self.changes, "moves": self.moves, "printed": self.printed, **statements}
            os.pwrite(self.status, json.dumps(told).encode().ljust(400), 0)

    def record_output(self) -> None:
        """Write what is printed to the rank's own files as well."""
        try:
            restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
            folder = os.path.join(self.folder, "logs", "restart_%d" % int(restart))
            os.makedirs(folder, exist_ok=True)
            for name, kind in (("stdout", "out"), ("stderr", "err")):
                stream = getattr(sys, name)
                path = os.path.join(folder, "rank_%s.%s" % (self.rank, kind))
                raw = Doubled(stream.fileno(), path)
                setattr(sys, name, text_of(raw, stream))
                self.kept.append(stream)
                self.doubled.append(raw)
        except Exception:
            pass

    def record_end(self) -> None:
        """Leave stacks at SIGTERM, and the recorder at an uncaught exception."""
        try:
            folder = os.path.join(self.folder, "at_end")
            os.makedirs(folder, exist_ok=True)
            path = os.path.join(folder, "stack_rank_%d.txt" % (self.rank or 0))
            if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
                file = open(path, "wb", 0)  # noqa: SIM115 - must stay open
                self.kept.append(file)
                faulthandler.register(signal.SIGTERM, file=file, all_threads=True, chain=True)
            before = sys.excepthook

            def hook(kind: Any, error: Any, traceback: Any) -> None:
                try:
                    known = initialized()
                    if known is not None and issubclass(kind, Exception) and os.getpid() == self.pid:
                        self.leave_recorder(folder, known[0], [])
                except Exception:
                    pass
                before(kind, error, traceback)

            sys.excepthook = hook
        except Exception:
            pass

    def end_recording_end(self) -> None:
        """Do not let a worker write its stacks into its rank's file."""
        try:
            faulthandler.unregister(signal.SIGTERM)
        except Exception:
            pass
