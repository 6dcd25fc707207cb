"""What a process does by its stack, by the frames of `stages/frames.toml`."""

from __future__ import annotations

from hangscope.knowledge.doing import doing, waits_for_its_device
from hangscope.model.frames import Frame
from hangscope.model.tables import entries


def frame(text: str) -> Frame:
    file, _, name = text.replace("*", "x").partition(":")
    return Frame(name, f"/opt/venv/lib/python3.11/site-packages/{file}", 7)


def test_every_entry_is_reached_by_its_own_frames() -> None:
    for entry in entries("stages/frames.toml", "frame"):
        stack = (frame(entry["frames"][0]), *map(frame, entry.get("within", ())[:1]))
        found = doing(stack)
        assert found is not None and found.doing == entry["doing"], entry["frames"]


def test_the_innermost_known_frame_decides_whatever_is_around_it() -> None:
    stack = (
        frame("socket.py:recv_into"),
        frame("ssl.py:read"),
        frame("filesystem.py:read_data"),
        frame("train.py:main"),
    )
    found = doing(stack)
    assert found is not None and found.doing == "waiting for an answer over the network"
    assert doing((frame("train.py:load"), frame("train.py:main"))) is None


def test_a_wait_for_the_device_says_less_than_the_frames_around_it() -> None:
    stack = (frame("torch/cuda/streams.py:synchronize"), frame("pynccl.py:__init__"))
    around, alone = doing(stack), doing(stack[:1])
    assert around is not None and around.message
    assert alone is not None and alone.device
    assert waits_for_its_device(stack) and not waits_for_its_device(stack[1:])
    users = Frame("synchronize", "/workspace/train/timing.py", 7)
    assert not waits_for_its_device((users,))
