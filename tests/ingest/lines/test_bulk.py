"""Lines of one form that repeats are read in bulk, with the same result as one by one."""

from __future__ import annotations

import io
import random
from collections.abc import Iterable

import pytest

from hangscope.ingest.lines.call_lines import CallParser
from hangscope.ingest.lines.prefixes import Line
from hangscope.ingest.lines.scan import scan
from hangscope.ingest.nccl.log import NcclParser
from hangscope.ingest.recorder.recording import Recording
from hangscope.ingest.torch_logs.detail import DetailParser
from hangscope.model.events import Event

LIFE = "gpu03:{pid}:{pid} [{dev}] NCCL INFO ncclCommInitRank comm 0x55d1{dev}a0 rank {dev} nranks 4 cudaDev {dev} busId {dev}b000 commId 0x77aa01 - Init COMPLETE"
COLL = (
    "{head}gpu03:{pid}:{tid} [{dev}] NCCL INFO {op}: opCount {number:x} sendbuff 0x7f4a2e{buffer:06x} recvbuff 0x7f4a2e00 count {count} "
    "datatype 9 op 0 root {root} comm 0x55d1{dev}a0 [nranks=4] stream 0x55d1b77e0{task}"
)
CALL = (
    "{head}[rank{rank}]:[I1120 15:13:{second:02}.220687360 ProcessGroupWrapper.cpp:710] [Rank {rank}] Running collective: CollectiveFingerPrint("
    "SequenceNumber={number}, OpType={op}, TensorShape=[{n}], TensorDtypes=Float, TensorDeviceTypes=TensorOptions(dtype=float (default), device=cpu))"
)
BARRIER = (
    "[rank{rank}]:[I1120 15:13:09.220687360 ProcessGroupWrapper.cpp:710] [Rank {rank}] Running collective: "
    "CollectiveFingerPrint(SequenceNumber={number}OpType=BARRIER)"
)


class OneByOne:
    """A parser without its bulk form."""

    wants_more = False

    def __init__(self, parser: NcclParser | DetailParser) -> None:
        self.parser = parser
        self.literals = parser.literals

    def feed(self, line: Line) -> Iterable[Event]:
        """Read one line."""
        return self.parser.feed(line)

    def close(self) -> Iterable[Event]:
        """End."""
        return self.parser.close()


def odd(line: str, dice: random.Random) -> str:
    """Return a line as it is, or, now and then, torn, cut, prefixed or followed by something else."""
    kind = dice.randrange(40)
    if kind == 0:
        return line[: dice.randrange(len(line))]
    if kind == 1:
        return line[: dice.randrange(len(line))] + line
    if kind == 2:
        return f"[default1]:{line}"
    if kind == 3:
        return f"{line}\r 37%|### | 7/19\nstep 4 loss 2.1"
    if kind == 4:
        return f'{line}\nTraceback (most recent call last):\n  File "a.py", line 3, in f\n    g()\nValueError: no\n'
    return line


def nccl_log(dice: random.Random) -> str:
    """Return a log of four processes' calls."""
    lines = [LIFE.format(pid=4100 + dev, dev=dev) for dev in range(4)]
    task = " task 3 globalrank 2" if dice.random() < 0.3 else ""
    for number in range(120):
        for dev in range(4):
            op, root = dice.choice(
                (("AllReduce", 0), ("AllGather", 0), ("Broadcast", 2), ("Send", 1), ("Recv", 3))
            )
            head = f"[2026-01-02 03:04:{number % 60:02}] " if dice.random() < 0.2 else ""
            line = COLL.format(
                head=head, pid=4100 + dev, tid=4100 + dev + dice.randrange(2), dev=dev, op=op, number=number, buffer=number * 512,
                count=dice.choice((64, 4096)), root=root, task=task,
            )  # fmt: skip
            lines.append(odd(line, dice))
    lines.insert(200, LIFE.format(pid=4101, dev=1).replace("0x55d11a0", "0x55d11b0"))
    lines.insert(300, LIFE.format(pid=4102, dev=2).replace("Init COMPLETE", "Destroy COMPLETE"))
    return "\n".join(lines) + "\n"


def detail_log(dice: random.Random) -> str:
    """Return a log of four ranks' calls, on two groups."""
    lines = []
    for number in range(150):
        for rank in range(4):
            op = dice.choice(("ALLREDUCE", "BROADCAST"))
            line = CALL.format(
                head="", rank=rank, second=number % 60, number=number, op=op, n=dice.choice((4, 58))
            )
            lines.append(odd(line, dice))
            if number % 7 == 0:
                lines.append(BARRIER.format(rank=rank, number=number // 7))
        if number == 90:
            lines.append(
                "E1120 15:31:49.819000 29458 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: -9) local_rank: 1 (pid: 29461) of binary: x"
            )
    return "\n".join(lines) + "\n"


def plain(recordings: Iterable[Recording]) -> list[object]:
    """Return all that recordings hold."""
    return [recording.to_wire() for recording in recordings]


@pytest.mark.parametrize("seed", range(10))
def test_nccl_calls_are_the_same_in_bulk_and_one_by_one(seed: int) -> None:
    text = nccl_log(random.Random(seed)).encode()
    fast, slow = NcclParser(), NcclParser()
    assert isinstance(fast, CallParser) and not isinstance(OneByOne(slow), CallParser)
    one, other = scan(io.BytesIO(text), "a.log", [fast]), scan(io.BytesIO(text), "a.log", [OneByOne(slow)])
    assert plain(fast.recordings()) == plain(slow.recordings())
    assert fast.communicators() == slow.communicators()
    assert one.events == other.events and fast.notes == slow.notes


@pytest.mark.parametrize("seed", range(10))
def test_calls_of_detail_are_the_same_in_bulk_and_one_by_one(seed: int) -> None:
    text = detail_log(random.Random(seed)).encode()
    fast, slow = DetailParser("a.log"), DetailParser("a.log")
    assert isinstance(fast, CallParser)
    scan(io.BytesIO(text), "a.log", [fast])
    scan(io.BytesIO(text), "a.log", [OneByOne(slow)])
    assert plain(fast.recordings()) == plain(slow.recordings())
