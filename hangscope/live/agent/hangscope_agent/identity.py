"""What this process is in the job: a rank, a worker of a rank, or a launcher."""

import os
from typing import Optional

from .proc import launches, number, process_of, rank_of
from .recorders import initialized


class Identity:
    """What one process is, by its environment and its command line."""

    def __init__(self, folder: str) -> None:
        self.pid = os.getpid()
        self.folder = folder
        self.rank: Optional[int] = None  # as its launcher started it
        self.restart = number(os.environ.get("TORCHELASTIC_RESTART_COUNT")) or 0
        self.worker = False  # of a rank: started by it, without a process group of its own
        self.launcher = False
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

    def made(self, where: str) -> str:
        """Make a folder of the run, and return it. Raises OSError."""
        folder = os.path.join(self.folder, where)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        return folder

    def global_rank(self) -> Optional[int]:
        """Return the rank in the process group, else the one that the launcher gave."""
        known = initialized()
        return known[0] if known else self.rank

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
