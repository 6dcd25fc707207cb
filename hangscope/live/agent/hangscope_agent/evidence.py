"""What a rank writes about itself: the stacks of all its threads and its workers, and its recorders."""

import faulthandler
import os
import sys
import threading
import time
from typing import Any, List

from .identity import Identity
from .proc import children_of, is_rank, stacks_of
from .recorders import initialized, recorders

WAIT_FOR_CHILD = 1.0  # s for a child that may be the rank itself
RECORDER_PATIENCE = 5.0  # s for the recorder to answer: on a device that hangs it may never do


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
