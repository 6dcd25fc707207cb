"""Deaths and faults that a process, the driver or the kernel prints: they outweigh every timeout that follows.

    RuntimeError: CUDA error: an illegal memory access was encountered
    NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.
    Memory cgroup out of memory: Killed process 1234 (python) ...

(c10/cuda/CUDAException.cpp, torch/utils/data/_utils, the NVIDIA driver, Linux mm/oom_kill.c.)

The kernel also reports a GPU that fell off its bus, over several lines, and the link of a network card:

    [ 1843.30] NVRM: The NVIDIA GPU 0000:b3:00.0
               NVRM: (PCI ID: 10de:2330) installed in this system has
               NVRM: fallen off the bus and is not responding to commands.
    [Mon Aug  3 17:20:44 2026] mlx5_core 0000:2a:00.0 ens6np0: Link down

(The NVIDIA driver's nvidia_open; drivers/net/ethernet and infiniband/hw.) A port without a cable reports a link that is down when the
host starts, and a link that comes back carries on: neither is a fault.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from hangscope.ingest.lines.blocks import Found, block
from hangscope.ingest.lines.forms import LineParser, any_of, says
from hangscope.ingest.lines.prefixes import Line
from hangscope.ingest.nccl.warn import NcclWarn
from hangscope.ingest.torch_logs.c10d import GroupEvent
from hangscope.model.events import Event
from hangscope.model.rankset import counted
from hangscope.model.regex import regex

_UNITS = "BKMGTPE"  # powers of 1024
IMPLAUSIBLE = 2**50
_AMOUNT = regex(r"Tried to allocate (?:more than )?(\d{1,15}(?:\.\d{1,6})?) ?([BKMGTPEb])\w{0,4}")
#: what torch's message (c10/cuda/CUDACachingAllocator.cpp) says of the processes on the device
_OTHERS = regex(r"\bProcess \d{1,10} has (\d{1,7}(?:\.\d{1,6})?) ?([BKMGT])\w{0,4} memory in use")
_OWN = regex(r"this process has (\d{1,7}(?:\.\d{1,6})?) ?([BKMGT])\w{0,4} memory in use")
_STALL = (
    r"(?i)\bno (?:new )?(?:progress|output|steps?|(?:log )?lines?)(?: from (?:any|all) (?:of the )?ranks?)? (?:for|in|within|since) "
    r"(?:the (?:last|past) )?\d{1,9}(?:\.\d{1,9})? ?(?:ms|s|sec|seconds?|m|min|minutes?|h|hours?)\b"
)


def _bytes(match: re.Match[str]) -> int:
    return int(float(match[1]) * 1024 ** _UNITS.index(match[2].upper()))


_SIZE = regex(r"(\d{1,9}(?:\.\d{1,3})?) ([bKMGT])\w{2,4}(?= (?:total|free|reserved))")
#: before torch 2.1, which counts what other processes hold: c10/cuda/CUDACachingAllocator.cpp
_SIZES = regex(
    r"\(GPU \d{1,4}; .{1,20} total capacity; .{1,24} already allocated; .{1,24} free; .{1,24} reserved in total"
)


def _oom_cuda(line: Line, match: re.Match[str]) -> dict[str, Any]:
    amount, own = _AMOUNT.search(line.text), _OWN.search(line.text)
    requested = _bytes(amount) if amount else None
    others = [_bytes(found) for found in _OTHERS.finditer(line.text)]
    elsewhere, who = sum(others), counted(len(others), "other process")
    shared = own is not None and elsewhere > _bytes(own)
    if (sizes := _SIZES.search(line.text)) is not None:
        total, free, reserved = (_bytes(found) for found in _SIZE.finditer(sizes[0]))
        elsewhere, who = total - free - reserved, "other processes"
        shared = elsewhere > max(reserved, total // 2)
    held = f"{elsewhere / 2**30:.1f} GiB are held by {who}" if shared else ""
    return {"requested": requested, "implausible": (requested or 0) >= IMPLAUSIBLE, "held": held}


class OomCuda(Event, same_by=("requested",)):
    """CUDA out of memory; `requested` is in bytes. `implausible`: 1 PiB or more, the consequence of a collective that never filled its buffer.

    `held` is what processes other than this one hold of the device, by torch's message: `16.2 GiB are held by 2 other processes`; empty where
    this process holds more itself.
    """

    requested: int | None = None
    implausible: bool = False
    held: str = ""
    forms = (
        says(r"(?:CUDA|HIP|XPU|NPU|MUSA) out of memory\. Tried to allocate", read=_oom_cuda),
        says("CUDA error: out of memory", read=_oom_cuda),
        # torch_npu's allocator of scratch memory
        says(r"out of memory\. NPUWorkspaceAllocator tried", read=_oom_cuda),
    )


def _killed_worker(line: Line, match: re.Match[str]) -> Event:
    # verl numbers the actors of a node by local rank, which is the rank on the first node (verl/single_controller/ray/base.py)
    first = re.search(r"[A-Za-z]_0:(\d{1,5})$", match["name"])
    event = line.event(OomHost, rank=int(first[1]) if first else None, victim_pid=int(match["victim"]))
    return replace(event, pid=None)


class OomHost(Event, same_by=("victim_pid",), by_launcher=True):
    """The host's or the cgroup's out-of-memory killer. The rank follows where one rank alone is known by `victim_pid`."""

    victim_pid: int | None = None
    forms = (
        # mm/oom_kill.c of Linux; where the words are cut, the line is put together from two
        says(
            r"(?:\b(?:Memory cgroup out|Out) of memory|oom.kill).{0,80}?Killed process (?P<victim_pid>\d{1,9})"
        ),
        # the control group that Slurm makes for a task has its number (task/cgroup; systemd's src/oom/oomd-util.c)
        says(
            r"oom-kill:.{0,400}?(?:task_memcg=[^,]{1,200}?/step_\w{1,20}/(?:user/)?task_(?P<task>\d{1,7})\b.{0,200}?)?"
            r",pid=(?P<victim_pid>\d{1,9})"
        ),
        says(
            r"Killed /\S{1,300}?/step_\w{1,20}/(?:user/)?task_(?P<task>\d{1,7})\S{0,100} due to memory pressure for "
        ),
        says(r"Detected \d{1,6} oom[_-]kill event", literal="kill event"),
        # not the command that asks for it, nor the answer that it was not so
        says(r"(?<![.\w])OOMKilled\b(?!\W{1,4}[Ff]alse)", literal="OOMKilled"),
        says("killed due to memory pressure"),
        # Ray's memory monitor, which names the worker that it kills
        says(
            r"name=(?P<name>\S{1,200}?), pid=(?P<victim>\d{1,9}), memory used=.{0,300}?exceeds the memory usage threshold",
            read=_killed_worker,
        ),
        says(r"Ray killed this worker \(ID: \w{1,60}, pid: (?P<victim_pid>\d{1,9})\) because"),
    )


class CudaError(GroupEvent, same_by=("error",), prints_group_rank=True):
    """Illegal access, device-side assert, ECC, launch failure."""

    error: str
    forms = (
        says(r"CUDA error: (?!out of memory)(?P<error>[^\n(]{2,119}[^\n( .])"),
        says(r"CUDA driver error: (?!out of memory)(?P<error>[^\n(]{2,119}[^\n( .])"),
        says(
            r"(?P<error>level_zero backend failed with error: \d{1,4} \(UR_RESULT_ERROR_DEVICE_LOST\))",
            literal="UR_RESULT_ERROR_DEVICE_LOST",
        ),
        says(r"HIP error: (?!out of memory)(?P<error>[^\n(]{2,119}[^\n( .])"),
        says(r"(?P<error>uncorrectable ECC error[\w ]{0,60})\b", literal="ncorrectable ECC error"),
        says(
            r"(?P<error>HW Exception by GPU node-\d{1,4}.{0,80}?reason ?: ?[\w ]{1,40})\b",
            literal="HW Exception by GPU",
        ),
        # drivers/gpu/drm/amd/amdgpu/amdgpu_job.c
        says(r"amdgpu: (?P<error>ring \S{1,40} timeout), signaled seq="),
    )


class Xid(Event, same_by=("code", "device"), by_launcher=True):
    """The driver's Xid. The rank follows where one rank alone is known by `victim_pid`."""

    code: int
    device: str | None = None
    victim_pid: int | None = None
    forms = (
        says(
            r"(?:NVRM: GPU |nvidia )(?:at PCI:)?(?P<device>[\da-f:.]{7,20}): GPU has fallen off the bus",
            code=79,
        ),
        says(
            r"NVRM: Xid \((?:PCI:)?(?P<device>[\w:.]{4,20})\): (?P<code>\d{1,4})(?:, pid='?(?P<victim_pid>\d{1,9})\b)?"
        ),
    )


class DeviceReset(Event, same_by=("device",), by_launcher=True):
    """The kernel resets an AMD GPU that hung (drivers/gpu/drm/amd/amdgpu/amdgpu_device.c). The rank follows from `device`, the PCI address."""

    device: str
    forms = (
        says(r"amdgpu (?P<device>[\da-f]{4,8}:[\da-f]{2}:[\da-f]{2}(?:\.\d)?): amdgpu: GPU reset begin"),
    )


class LoaderWorkerDeath(Event, same_by=("worker_pid",)):
    """A data loader worker was killed, or had a bus error."""

    worker_pid: int | None = None
    signal: str | None = None
    forms = (
        says(
            r"DataLoader worker \(pid\(?s?\)? (?P<worker_pid>\d{1,9})[\d, ]{0,400}\)"
            r" (?:is killed by signal: (?P<signal>[\w ]{1,40})|exited unexpectedly)"
        ),
        says(r"Unexpected (?P<signal>bus error) encountered in worker"),
    )


def _on_a_disk(line: Line, _: re.Match[str]) -> dict[str, Any] | None:
    return None if "/dev/shm" in line.text else {}


class DiskFull(Event, same_by=()):
    """No space, or no quota, left where the rank writes; a full /dev/shm is no disk."""

    forms = (
        says("No space left on device", read=_on_a_disk),
        says("Disk quota exceeded"),
    )


class NoProgress(Event, same_by=()):
    """A watcher in the job reports that it makes no progress."""

    forms = (
        *any_of(
            ("no progress ", "No progress ", "no output ", "No output ", "no step ", "no line ", "no new line", "No new line"),
            _STALL,
        ),
        # vllm/distributed/device_communicators/shm_broadcast.py; workers that compile print it too
        says(r"No available shared memory broadcast block found in \d{1,9} seconds"),
    )  # fmt: skip


_STARTING = 600.0  # seconds since the kernel's start
_MOST = 256  # links of one text
_LINK = regex(
    r"\b((?:mlx[45]_(?:core|ib)|bnxt_en|ice|i40e|irdma|hfi1|efa|ena|qede|cxgb4|hns3)\b.{0,120}?)"
    r"(?::? [Ll]ink (?:is )?([Dd]own|[Uu]p)|: NIC Link is (Down|Up)|: [Pp]ort \d+ (?:went )?(down|up))\b"
)
_SINCE_START = regex(r"^\[ {0,6}(\d{1,9}\.\d{1,9})\]")
_OFF = r"NVRM: .{0,200}?\bfallen off the bus and is not responding"


def _gone(found: Found) -> Iterator[Event]:
    """Yield the device that is gone."""
    if "fallen off" in found.latest.text:
        yield found.latest.event(Xid, code=79, device=found.last("device"))


GONE = block(
    says(r"NVRM: The NVIDIA GPU (?:at )?(?:PCI:)?(?P<device>[\da-f]{4,8}:[\da-f]{2}:[\da-f]{2}(?:\.\d)?)"),
    says(_OFF),
    ends=regex(_OFF),
    lines=4,
    made=_gone,
)


class LinkParser(LineParser):
    """Returns at the end of a text the links that went down and did not come back."""

    literals = (
        b"Link down", b"Link up", b"link down", b"link up", b"Link is ", b"link is ", b": Port ", b": port ",
    )  # fmt: skip

    def __init__(self) -> None:
        self._down: dict[tuple[str | None, str], Line] = {}

    def feed(self, line: Line) -> Iterable[Event]:
        """Take note of a link's state."""
        if link := _LINK.search(line.text):
            key, since = (line.host, link[1].strip()), _SINCE_START.match(line.raw)
            if (link[2] or link[3] or link[4]).lower() == "up":
                self._down.pop(key, None)
            elif len(self._down) < _MOST and not (since and float(since[1]) < _STARTING):
                self._down.setdefault(key, line)
        return ()

    def close(self) -> Iterable[Event]:
        """Return the links that are down."""
        for (_, nic), line in self._down.items():
            yield line.event(NcclWarn, fault="port_error", tier=1, nic=nic[:80])
