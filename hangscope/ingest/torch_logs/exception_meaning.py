"""What an exception tells: whose code a frame is, and whether it is this rank's own or what it noticed of a peer."""

from __future__ import annotations

import re

from hangscope.model.regex import regex

_LIBRARY = regex(
    r"(?:^|/)(?:site-packages|dist-packages)/|(?:^|/)lib(?:64)?/python\d[\d.]*/|^<(?:frozen|string|"
    r"__array_function__|eval_with)"
    r"|(?:^|/)torch/(?:distributed|nn|autograd|utils|_\w+|cuda|optim)/|/bin/(?:torchrun|accelerate|"
    r"deepspeed)$|^/build/|/importlib/"
)

#: What the communication layer noticed of a peer, or of the calls not fitting together: never this rank's own fault by itself.
_SYMPTOMS = regex(
    r"Connection closed by peer|Connection reset by peer|RuntimeError: Connection refused|closed by (?:remote )?peer|Broken pipe|Application "
    r"timeout caused pair closure"
    r"|Timed out waiting \d+ ?ms|Timed out after \d+ seconds waiting for clients|wait timeout after \d+|"
    r"Socket Timeout|client socket has (?:timed out|failed)|server socket has failed to listen"
    r"|Gloo connectFullMesh failed|ss1\.ss_family == ss2\.ss_family|connect\(\) timed out|recvValue failed|failed to recv, got 0 bytes|TCP "
    r"client failed to connect"
    r"|Watchdog caught collective operation timeout|watchdog thread terminated|NCCL communicator was aborted|"
    r"timed out in blocking wait"
    r"|NCCL communicator encountered error|remote process exited|ncclRemoteError|ncclSystemError|"
    r"ncclInternalError|remote error detected from rank"
    r"|retrieving ncclUniqueId|store based barrier|failed to pass monitoredBarrier|reached monitoredBarrier|"
    r"in monitoredBarrier|RPC call to \w{1,80} timed out|Monitored Barrier encountered error"
    r"|Detected mismatch between collectives|is running inconsistent collective|Received data size doesn't "
    r"match|op\.preamble\.length"
    r"|DDP expects same model across all ranks|appears not to match (?:sizes|strides)|Expected to have "
    r"finished reduction in the prior iteration|Forward order differs across ranks"
    r"|Horovod has been shut down|Mismatched [A-Za-z]{5,20} (?:tensor shapes|data types|root ranks|ops?)|other ranks (?:that )?(?:did(?: not|n't)|have not|haven't) |exhausted inputs\. Throwing across all ranks|Rank \d{1,7} exhausted all inputs|aborted by|collective operation timeout"
    # who polls for what another process has to make
    r"|\bTimed out (?:receiving|waiting for)\b|\b[Ww]aiting for .{1,80}, bailing out"
    # what is thrown in C++ arrives as a RuntimeError; a bare word of time is of a wait for peers (Python's own have other types)
    r"|^RuntimeError: [Tt]ime(?:d |-)?out\W{0,3}$|^(?:\w{1,40}\.){0,4}Timeout(?:Error)?: $"
    # engines and actors: the front end gave a worker up, or only noticed its end
    r"|DeepEP error: (?:CPU recv )?timeout|Engine core initialization failed|EngineCore encountered an issue|WorkerProc initialization failed"
    r"|timed out after \d{1,7}(?:\.\d{1,3})? ?s(?:econds)?\b.{0,80}\b(?:rank|worker|peer|actor|engine|rpc)"
    # torch_npu: a call of HCCL's, and ACL's codes for a wait and a task that timed out
    r"|\bHccl[A-Z]\w{1,60}, error code is \d|\berror code is (?:107019|107020|507048)\b"
)
_SYMPTOM_TYPES = (
    "CheckpointException",  # of torch.distributed.checkpoint, which all ranks raise for those that failed
    "DistributedOperationException",  # of Accelerate's check, which all ranks raise over what one of them gave
    "DistNetworkError",
    "DistStoreError",
    "DistBackendError",
    "BrokenPipeError",
    "ConnectionResetError",
    "ConnectionRefusedError",
    "EngineDeadError",
    "AsyncEngineDeadError",
    "ActorDiedError",
    "ActorUnavailableError",
    "ActorHandleNotFoundError",
    "GetTimeoutError",
)
_OWN_IN_NCCL = regex(
    r"unhandled cuda error|ncclUnhandledCudaError|invalid usage|ncclInvalidUsage|Duplicate GPU|out of memory",
    re.IGNORECASE,
)


def is_library(path: str) -> bool:
    """Return whether a frame's file belongs to Python, torch or an installed package, not to the user's code."""
    return bool(_LIBRARY.search(path.replace("\\", "/")))


def is_symptom(kind: str, message: str) -> bool:
    """Return whether an exception tells what the communication layer noticed, not what this rank did."""
    text = f"{kind}: {message}"
    if _SYMPTOMS.search(text):
        return True
    return re.split(r"\.|::", kind)[-1] in _SYMPTOM_TYPES and not _OWN_IN_NCCL.search(text)
