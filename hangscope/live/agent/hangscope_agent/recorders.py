"""The flight recorders of the torch that the program has imported, and the progress of the rank that they show."""

import functools
import json
import os
import sys
from typing import Any, List, Optional, Tuple

HOOKED = ("nccl2", "nccl-lazy", "mpi", "ucc")  # backends that record by a hook since 2.15


def initialized() -> Optional[Tuple[int, int]]:
    """Return (rank, world size) of the default process group, or None where there is none."""
    try:
        dist = sys.modules.get("torch.distributed")
        if dist is None or not dist.is_initialized():
            return None
        return int(dist.get_rank()), int(dist.get_world_size())
    except Exception:
        return None


def recorders(form: str = "") -> List[Tuple[str, Any]]:
    """Return (name of a dump, function that makes it) for each recorder of the torch that is loaded; `form` may be `_json`.

    NCCL's own, gloo's, and since 2.15 one for each backend that is recorded by a hook (`backend=` of _dump_fr_trace).
    """
    module = sys.modules.get("torch._C._distributed_c10d")
    own: Any = getattr(module, "_dump_nccl_trace" + form, None)
    dump: Any = getattr(module, "_dump_fr_trace" + form, None)
    hooked = HOOKED if takes_backend(dump) else ()
    found = [("nccl_trace_rank", own), ("comm_lib_trace_rank", dump)]
    found += [(name + "_trace_rank", functools.partial(dump, backend=name)) for name in hooked]
    return [(name, make) for name, make in found if make is not None]


def takes_backend(dump: Any) -> bool:
    """Return whether a function, if there is one, gives the recorder of the backend that it is asked for."""
    return dump is not None and "backend" in (dump.__doc__ or "").split("\n")[0]


def frontier(dump: Any) -> Any:
    """Return bytes that change when a call was made or completed, None where they cost too much."""
    try:
        return hash(dump(includeCollectives=False, includeStackTraces=False, onlyActive=False))
    except TypeError:
        return None  # torch before 2.4 writes everything or nothing


def calls_are_recorded() -> bool:
    """Return whether a recorder tells of the calls of the default group's backends."""
    if "0" in (os.environ.get("TORCH_FR_BUFFER_SIZE"), os.environ.get("TORCH_NCCL_TRACE_BUFFER_SIZE")):
        return False
    dist, module = sys.modules["torch.distributed"], sys.modules.get("torch._C._distributed_c10d")
    told = getattr(dist, "get_backend_config", dist.get_backend)()  # `nccl`, or `cpu:gloo,cuda:nccl`
    backends = {word.rpartition(":")[2] for word in str(told).lower().split(",")}
    recorded = {"nccl"} if hasattr(module, "_dump_nccl_trace") else set()
    recorded |= {"gloo"} if hasattr(module, "_dump_fr_trace") else set()
    recorded |= {"nccl", *HOOKED} if takes_backend(getattr(module, "_dump_fr_trace", None)) else set()
    return bool(backends & recorded)


def calls_were_made() -> bool:
    """Return whether a recorder has recorded a call; a group that was only made is no progress yet."""
    found = recorders("_json")
    for _, dump in found:
        status = json.loads(dump(includeCollectives=False, onlyActive=False)).get("pg_status")
        if any(int(group["last_enqueued_collective"]) > 0 for group in (status or {}).values()):
            return True
    return not found  # what is unknown counts as given
