"""What a process does or waits for, by its stack: the frames that engineers look for, in `stages/frames.toml`."""

from __future__ import annotations

from functools import cache, lru_cache

from hangscope.knowledge.rule import FramePattern
from hangscope.model.dataclass import dataclass
from hangscope.model.frames import Stack
from hangscope.model.tables import entries


@dataclass(frozen=True, slots=True)
class Doing:
    """What processes with one of these frames do. `within`: frames of which one must be on the stack, too, if there are any.

    `doing` continues "rank 3 is ..."; `message`: it waits for a message of another process; `collective`: it waits
    for all ranks of a group; `device`: it waits on the CPU for what is queued on its GPU; `host`: it waits for something of its own host, and for no other rank;
    `returned`: it has returned from what it was asked to do, if the frame is the innermost one, and only then; `remedy`: what to do then.
    """

    frames: tuple[FramePattern, ...]
    doing: str
    within: tuple[FramePattern, ...] = ()
    message: bool = False
    collective: bool = False
    device: bool = False
    host: bool = False
    returned: bool = False
    remedy: str = ""


@cache
def _table() -> tuple[Doing, ...]:
    found = entries("stages/frames.toml", "frame")
    for entry in found:
        for key in {"frames", "within"} & entry.keys():
            entry[key] = tuple(FramePattern(*text.split(":", 1)) for text in entry[key])
    return tuple(Doing(**entry) for entry in found)


def doing(stack: Stack) -> Doing | None:
    """Return what a stack (innermost frame first) shows of its process, by the innermost frame of which something is known.

    A wait for the device says less than what is known of the frames around it.
    """
    known = _known(stack)
    return next((entry for entry in known if not entry.device), known[0] if known else None)


def waits_for_its_device(stack: Stack) -> bool:
    """Return whether a CPU thread waits for what is queued on its GPU, such as the kernel of a collective."""
    return any(entry.device for entry in _known(stack))


@lru_cache(maxsize=4096)
def _known(stack: Stack) -> list[Doing]:
    """Return what is known of the frames of a stack, innermost first."""
    return [
        entry
        for frame in stack
        for entry in _table()
        if any(pattern.matches(frame) for pattern in entry.frames)
        and (not entry.within or any(p.matches(f) for p in entry.within for f in stack))
        and (frame is stack[0] or not entry.returned)
    ]
