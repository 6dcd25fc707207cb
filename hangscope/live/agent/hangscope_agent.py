"""What `hangscope run` loads into the ranks: it waits in a thread, and leaves evidence when it is asked to.

Standard library only, any Python from 3.8, no import of torch: what is looked at is what the program has imported
itself. Every entry point catches everything; a job must never notice that this is here.

- A new modification time of `$HANGSCOPE_DIR/trigger` asks for `capture_NN/stack_rank_R.txt` and, where a process group
  exists, `capture_NN/comm_lib_trace_rank_R` (gloo, nccl2) or `nccl_trace_rank_R`. The stack file is renamed last: it
  says that the rank has answered.
- The signal STACK_SIGNAL makes C code of faulthandler write all stacks into an anonymous file, which works while some
  thread holds the GIL. Who asked reads it as /proc/PID/fd/N. Loader workers answer in this way only.
- SIGTERM leaves the stacks in `at_end/` before it does what it does; an uncaught exception leaves the recorder there.
- A frontier that stands still leaves both in `stall/`, so that they are there when all is killed at once; they are
  removed when it moves again.
- An anonymous file tells how far the rank's recorder has come.
- What the rank prints through sys.stdout and sys.stderr goes to `logs/restart_N/rank_R.{out,err}` as well.
"""

import faulthandler
import functools
import io
import json
import os
import signal
import sys
import threading
import time
from typing import Any, Dict, List, Optional, Tuple

STACK_SIGNAL = signal.SIGRTMIN + 11
STATUS_NAME, STACKS_NAME = "hangscope-status", "hangscope-stacks"
INTERVAL = 1.0  # s between two looks
STALL = 30.0  # s without a call until evidence is left unasked
STALL_GROWTH = 1.5  # the next unasked one takes so much longer than the longest pause that ended
RECORDER_PATIENCE = 5.0  # s for the recorder to answer: on a device that hangs it may never do
RANK_NAMES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK")
WORLD_NAMES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_NTASKS")
LAUNCHERS = ("torchrun", "torch.distributed.run", "torch.distributed.launch", "accelerate", "deepspeed", "ray",
             "deepspeed.launcher.launch", "deepspeed.launcher.runner", "horovodrun", "mpirun", "hangscope")  # fmt: skip
HOOKED = ("nccl2", "nccl-lazy", "mpi", "ucc")  # backends that record by a hook since 2.15
WORK = (("torch/_dynamo/", "compile"), ("torch/_inductor/", "compile"), ("/triton/", "compile"),
        ("torch/serialization.py", "save"), ("torch/distributed/checkpoint/", "save"), ("safetensors/", "save"))  # fmt: skip

_agent: Optional["Agent"] = None


def start() -> None:
    """Start the agent of this process, if the job is run by `hangscope run`."""
    global _agent
    folder = os.environ.get("HANGSCOPE_DIR", "")
    if not folder or _agent is not None or not os.path.isdir(folder):
        return
    _agent = Agent(folder)
    os.register_at_fork(after_in_child=_after_fork)


def _after_fork() -> None:
    try:
        if _agent is not None:
            _agent.after_fork()
    except Exception:
        pass


def rank_of(environment: Dict[str, str], command: List[str]) -> Optional[int]:
    """Return the global rank that a process was started as, or None."""
    for word in command[1:4]:
        if os.path.basename(word) in LAUNCHERS:
            return None
    for name in RANK_NAMES:
        if environment.get(name, "").isdigit():
            return int(environment[name])
    if "SLURM_STEP_ID" in environment and environment.get("SLURM_PROCID", "").isdigit():
        return int(environment["SLURM_PROCID"])
    return None


def process_of(pid: int) -> Tuple[Dict[str, str], List[str]]:
    """Return the environment that a process was started with, and its command line."""
    with open("/proc/%d/environ" % pid, "rb") as file:
        pairs = [item.split("=", 1) for item in os.fsdecode(file.read()).split("\0") if "=" in item]
    with open("/proc/%d/cmdline" % pid, "rb") as file:
        words = os.fsdecode(file.read()).rstrip("\0").split("\0")
    return {pair[0]: pair[1] for pair in pairs}, words


class Agent:
    """The agent of one process."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.rank: Optional[int] = None
        self.worker = False  # of a rank: started by it, without a process group of its own
        self.asked = self.trigger_time()
        self.answers = 0
        self.changes = self.moves = 0
        self.token: Any = None
        self.stack: Any = None
        self.since = time.monotonic()
        self.longest = 0.0
        self.patience = float(os.environ.get("HANGSCOPE_STALL", STALL))
        self.stalled: List[str] = []
        self.status = self.at_end = -1
        self.pid = os.getpid()
        self.kept: List[Any] = []  # files that nothing may close
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
        if known is None:
            return
        token = [frontier(dump) for _, dump in recorders()]
        now = time.monotonic()
        if token != self.token:
            if self.token is not None:
                self.longest = max(self.longest, now - self.since)
            self.token, self.since = token, now
            if self.changes or calls_were_made():
                self.changes += 1
            for path in self.stalled:
                try:
                    os.unlink(path)
                except OSError:
                    pass
            self.stalled = []
        quiet = now - self.since
        place, work = where_is_main_thread()
        if place != self.stack:
            self.stack = place
            self.moves += 1
        self.tell(
            rank=known[0],
            world=known[1],
            changes=self.changes,
            quiet=round(quiet, 1),
            moves=self.moves,
            work=work,
        )
        if quiet >= max(self.patience, STALL_GROWTH * self.longest) and not self.stalled and any(token):
            self.stalled = self.leave("stall") or [""]

    def tell(self, **facts: Any) -> None:
        """Put facts where `hangscope run` finds them."""
        if self.status >= 0:
            os.pwrite(self.status, json.dumps(facts).encode().ljust(400), 0)

    def record_output(self) -> None:
        """Write what is printed to the rank's own files as well."""
        try:
            restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
            folder = os.path.join(self.folder, "logs", "restart_%d" % int(restart))
            os.makedirs(folder, exist_ok=True)
            for name, kind in (("stdout", "out"), ("stderr", "err")):
                stream = getattr(sys, name)
                path = os.path.join(folder, "rank_%s.%s" % (self.rank, kind))
                setattr(sys, name, doubled(stream, path))
                self.kept.append(stream)
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


class Doubled(io.FileIO):
    """A descriptor of which everything written goes to a second file too."""

    def __init__(self, descriptor: int, path: str) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self.copy = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0), 0o644)

    def write(self, data: Any) -> Any:
        """Write to the one, and what it took to the other."""
        count = super().write(data)
        try:
            os.write(self.copy, bytes(data)[:count])
        except OSError:
            pass  # a full disk for evidence is not the job's concern
        return count


def doubled(stream: Any, path: str) -> Any:
    """Return a text stream like this one that also writes to a file."""
    raw = Doubled(stream.fileno(), path)
    direct = isinstance(stream.buffer, io.RawIOBase)
    return io.TextIOWrapper(
        raw if direct else io.BufferedWriter(raw),  # type: ignore[arg-type,unused-ignore]
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=not direct,  # a pipe would keep the last lines of a rank that stands still
        write_through=direct,
    )


def initialized() -> Optional[Tuple[int, int]]:
    """Return (rank, world size) of the default process group, or None where there is none."""
    try:
        dist = sys.modules.get("torch.distributed")
        if dist is None or not dist.is_initialized():
            return None
        return int(dist.get_rank()), int(dist.get_world_size())
    except Exception:
        return None


def recorders() -> List[Tuple[str, Any]]:
    """Return (name of a dump, function that makes it) for each recorder of the torch that is loaded.

    NCCL's own, gloo's, and since 2.15 one for each backend that is recorded by a hook (`backend=` of _dump_fr_trace).
    """
    module = sys.modules.get("torch._C._distributed_c10d")
    found = []
    if hasattr(module, "_dump_nccl_trace"):
        found.append(("nccl_trace_rank", module._dump_nccl_trace))  # type: ignore[union-attr]
    dump = getattr(module, "_dump_fr_trace", None)
    if dump is not None:
        found.append(("comm_lib_trace_rank", dump))
        if "backend" in (dump.__doc__ or "").split("\n")[0]:
            found += [(name + "_trace_rank", functools.partial(dump, backend=name)) for name in HOOKED]
    return found


def frontier(dump: Any) -> Any:
    """Return bytes that change when a call was made or completed, None where they cost too much."""
    try:
        return hash(dump(includeCollectives=False, includeStackTraces=False, onlyActive=False))
    except TypeError:
        return None  # torch before 2.4 writes everything or nothing


def calls_were_made() -> bool:
    """Return whether a recorder tells of a call; a group that was only made is no progress yet."""
    module = sys.modules.get("torch._C._distributed_c10d")
    for name in ("_dump_nccl_trace_json", "_dump_fr_trace_json"):
        dump = getattr(module, name, None)
        if dump is None:
            continue
        hooked = HOOKED if "backend" in (dump.__doc__ or "") else ()
        for option in [{}, *({"backend": kind} for kind in hooked)]:
            status = json.loads(dump(includeCollectives=False, onlyActive=False, **option)).get("pg_status")
            if any(int(group["last_enqueued_collective"]) > 0 for group in (status or {}).values()):
                return True
    return not hasattr(module, "_dump_fr_trace_json")  # what cannot be told is taken for granted


def where_is_main_thread() -> Tuple[int, str]:
    """Return a mark of the main thread's place, and which known long work it is in."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    place, work, depth = 0, "", 0
    while frame is not None and depth < 200:
        place = hash((place, frame.f_code, frame.f_lineno))
        for part, kind in WORK:
            if part in frame.f_code.co_filename:
                work = kind
        frame, depth = frame.f_back, depth + 1
    return place, work


def stacks_of_children(pid: int) -> List[Tuple[int, str]]:
    """Return the stacks of the processes below one, of those that listen for the signal."""
    found = []
    for child in children_of(pid):
        text = stacks_of(child)
        if text:
            found.append((child, text))
    return found


def children_of(pid: int) -> List[int]:
    """Return the processes below one, in the order of their numbers."""
    below: Dict[int, List[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open("/proc/%s/stat" % name, "rb") as file:
                    parent = int(file.read().rpartition(b")")[2].split()[1])
                below.setdefault(parent, []).append(int(name))
            except (OSError, IndexError, ValueError):
                pass  # it has just ended
    found = list(below.get(pid, []))
    for parent in found:  # grows
        found += below.get(parent, [])
    return sorted(found)[:256]


def stacks_of(pid: int, patience: float = 0.5) -> str:
    """Return what faulthandler says of a process that listens for the signal, "" where it does not."""
    path = anonymous(pid, STACKS_NAME)
    if not path or not catches(pid, STACK_SIGNAL):
        return ""
    try:
        before = os.stat(path).st_size
        os.kill(pid, STACK_SIGNAL)
        size, deadline = -1, time.monotonic() + patience
        while time.monotonic() < deadline:
            time.sleep(0.02)
            now = os.stat(path).st_size
            if now > before and now == size:
                break
            size = now
        with open(path, "rb") as file:
            file.seek(before)
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def anonymous(pid: int, name: str) -> str:
    """Return the path of an anonymous file of a process, "" where it has none of that name."""
    folder = "/proc/%d/fd" % pid
    try:
        for number in sorted(os.listdir(folder), key=int):
            path = folder + "/" + number
            if os.readlink(path).startswith("/memfd:" + name):
                return path
    except OSError:
        pass
    return ""


def catches(pid: int, number: int) -> bool:
    """Return whether a process has a handler for a signal."""
    try:
        with open("/proc/%d/status" % pid) as file:
            for line in file:
                if line.startswith("SigCgt:"):
                    return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    except (OSError, ValueError):
        pass
    return False
