"""What a rank writes about itself: the stacks of all its threads and its workers, and its recorders."""

import faulthandler
import os
import sys
import threading
import time
from typing import Any, List

from .identity import Identity
from .proc import children_of, stacks_of_children
from .recorders import initialized, recorders

WAIT_FOR_CHILD = 1.0  # s for a child that may be the rank itself
RECORDER_PATIENCE = 5.0  # s for the recorder to answer: on a device that hangs it may never do


class Evidence:
    """The evidence of one process."""

    def __init__(self, folder: str, identity: Identity) -> None:
        self.folder, self.identity = folder, identity

    def leave(self, where: str) -> List[str]:
        """Write this process's stacks and its recorder into a folder of the run, and return the files."""
        known, pid = initialized(), self.identity.pid
        rank = known[0] if known else self.identity.rank
        if rank is None:
            return []
        folder = os.path.join(self.folder, where)
        os.makedirs(folder, mode=0o700, exist_ok=True)
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
            for child, text in stacks_of_children(pid):
                file.write("\nProcess %d: worker of rank %d\n%s" % (child, rank, text))
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
                    unfinished = os.path.join(folder, ".%s_%d.%d" % (name, rank, self.identity.pid))
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

    def record_exception(self) -> None:
        """Leave the recorder at an uncaught exception."""
        before = sys.excepthook

        def hook(kind: Any, error: Any, traceback: Any) -> None:
            try:
                known = initialized()
                if known is not None and issubclass(kind, Exception) and os.getpid() == self.identity.pid:
                    folder = os.path.join(self.folder, self.identity.of_attempt("at_end"))
                    os.makedirs(folder, mode=0o700, exist_ok=True)
                    self.leave_recorder(folder, known[0])
            except Exception:
                pass
            before(kind, error, traceback)

        sys.excepthook = hook
