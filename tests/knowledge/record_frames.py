"""Record the frames of real libraries: `python tests/knowledge/record_frames.py` writes `frames.json` beside it.

Two processes on gloo make each library call of `hangscope/knowledge`, as users write it, and the Flight Recorder (for sends
and receives, which gloo does not record: the Python stack at the call) tells the frames. Needs the extra `frameworks`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tempfile
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import calls.huggingface_calls  # noqa: E402
import calls.lightning_calls  # noqa: E402
import calls.other_calls  # noqa: E402
import calls.torch_calls  # noqa: E402, F401
from calls.registry import CALLS  # noqa: E402


def worker(target: Path) -> None:
    import pickle

    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    c10d: Any = torch._C._distributed_c10d
    stacks: list[list[tuple[str, str, int]]] = []

    def watched(function: Callable[..., Any]) -> Callable[..., Any]:
        def record(*args: Any, **kwargs: Any) -> Any:
            stacks.append(
                [(f.name, f.filename, f.lineno or 0) for f in reversed(traceback.extract_stack()[:-1])]
            )
            return function(*args, **kwargs)

        return record

    for name in ("isend", "irecv", "send", "recv", "batch_isend_irecv"):
        setattr(dist.distributed_c10d, name, watched(getattr(dist.distributed_c10d, name)))
        setattr(dist, name, getattr(dist.distributed_c10d, name))
    c10d.ProcessGroup.monitored_barrier = watched(c10d.ProcessGroup.monitored_barrier)
    dist.init_process_group("gloo", timeout=timedelta(seconds=20))
    dist.destroy_process_group = dist.distributed_c10d.destroy_process_group = lambda group=None: None
    places = [
        (sysconfig.get_path(p), "/opt/venv/lib/python3.11/site-packages") for p in ("purelib", "platlib")
    ]
    places += [(sysconfig.get_path("stdlib"), "/usr/lib/python3.11"), (str(HERE), "/workspace/train")]

    def neutral(path: str) -> str:
        for old, new in places:
            path = path.replace(old, new)
        return path

    known: dict[str, list[list[tuple[str, str, int]]]] = {}
    wanted = [name for name in os.environ["RECORD_ONLY"].split("|") if name] or list(CALLS)
    for name in wanted:
        before = {e["record_id"] for e in pickle.loads(c10d._dump_fr_trace())["entries"]}
        stacks.clear()
        try:
            CALLS[name]()
        except Exception as error:
            print(f"rank {dist.get_rank()}: {name}: {type(error).__name__}: {str(error)[:300]}", flush=True)
        entries = [e for e in pickle.loads(c10d._dump_fr_trace())["entries"] if e["record_id"] not in before]
        found = [[(f["name"], f["filename"], f["line"]) for f in e["frames"]] for e in entries] + stacks
        mine = [[(n, neutral(f), line) for n, f, line in stack] for stack in found]
        mine = [
            stack[: next((i for i, s in enumerate(stack) if s[0] == "worker"), len(stack))] for stack in mine
        ]
        known[name] = [list(s) for s in dict.fromkeys(tuple(stack) for stack in mine if stack)]
        dist.barrier()
    if dist.get_rank() == 0:
        target.write_text(json.dumps(known))
    os._exit(0)  # some of the libraries do not take down what they set up


def main(names: list[str]) -> None:
    sys.path.insert(0, str(HERE.parents[1]))
    from hangscope.knowledge.library import own_knowledge
    from hangscope.model.incident import Frame

    kept = Path(os.environ.get("RECORD_INTO") or HERE / "frames.json")
    known = json.loads(kept.read_text()) if names and kept.exists() else {}
    with tempfile.TemporaryDirectory() as scratch:
        target = Path(scratch) / "frames.json"
        command = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--nproc-per-node",
            "2",
            "--rdzv-backend",
            "c10d",
        ]
        command += ["--rdzv-endpoint", "localhost:0", str(HERE / "record_frames.py"), "--worker", str(target)]
        env = {**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "1", "DS_ACCELERATOR": "cpu"}
        env |= {"RECORD_ONLY": "|".join(names), "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
        subprocess.run(command, cwd=scratch, env=env, check=False, timeout=560)
        found = json.loads(target.read_text())
    for name, stacks in found.items():
        apis = [own_knowledge().read(tuple(Frame(*f) for f in s)).api for s in stacks]
        bare = name.split(": ")[-1]
        good = [s for s, api in zip(stacks, apis, strict=True) if api == bare]
        print(
            f"{name}: {len(stacks)} stacks, {len(good)} read as this call; others {sorted({str(a) for a in apis} - {bare})}"
        )
        known[name] = (good or stacks)[:1]
    lines = [
        json.dumps(name) + ": [\n" + ",\n".join(map(json.dumps, s)) + "\n]"
        for name, s in sorted(known.items())
    ]
    kept.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(Path(sys.argv[2]))
    else:
        main(sys.argv[1:])
