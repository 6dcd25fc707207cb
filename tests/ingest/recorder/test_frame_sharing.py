"""A pickle whose frames are shared holds the same value, whoever wrote it and whatever it holds."""

from __future__ import annotations

import io
import pickle
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hangscope.ingest.recorder import frame_sharing, safe_pickle
from hangscope.ingest.recorder.frame_sharing import FrameSharing

sys.path.append(str(Path(__file__).resolve().parents[3] / "benchmarks"))
from dump_generator import Job, generate

DEEP = 12  # frames of a stack, more than enough to be worth sharing


def fresh(text: str) -> str:
    """Return an equal string that is another object, so that a pickler writes it in full."""
    return text.encode().decode()


def stack(line: int, depth: int = DEEP) -> list[dict[str, Any]]:
    return [
        {
            "name": fresh(f"function_{i}"),
            "filename": fresh(f"/workspace/train/module_{i}.py"),
            "line": line + i,
        }
        for i in range(depth)
    ]


def dump(lines: list[int], depth: int = DEEP, **more: Any) -> dict[str, Any]:
    entries = [
        {"frames": stack(line, depth), "record_id": i, "time_created_ns": 10**18 + i}
        for i, line in enumerate(lines)
    ]
    return {"version": "2.10", "entries": entries, **more}


def without_memo(value: Any) -> bytes:
    out = io.BytesIO()
    pickler = pickle.Pickler(out, protocol=2)
    pickler.fast = True
    pickler.dump(value)
    return out.getvalue()


def distinct(value: dict[str, Any]) -> int:
    return len({id(entry["frames"]) for entry in value["entries"]})


def memoizing(value: Any) -> bytes:
    return pickle.dumps(value, protocol=2)


@pytest.mark.parametrize("write", [memoizing, without_memo])
def test_equal_stacks_become_one_list(write: Any) -> None:
    value = dump([100, 200, 300, 100, 200, 300] * 20)
    data = write(value)
    shared = FrameSharing().share(data)
    assert len(shared) < len(data) / 5
    loaded = safe_pickle.load(shared)
    assert loaded == value
    assert (
        distinct(loaded) <= 9
    )  # the first of each are written with their keys, then with shorter memo numbers
    assert distinct(pickle.loads(data)) == 120


def test_the_dump_before_helps_and_does_not_matter() -> None:
    sharing = FrameSharing()
    for lines in ([1, 2, 3] * 40, [1, 2, 3] * 40, [3, 2, 1, 4] * 30, [5] * 50, [1, 2, 3] * 40):
        value = dump(lines)
        data = memoizing(value)
        shared = sharing.share(data)
        assert len(shared) < len(data) / 3
        assert safe_pickle.load(shared) == value


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 6), max_size=40), min_size=1, max_size=3),
    st.sampled_from([memoizing, without_memo]),
    st.sampled_from([1, 3, 8, DEEP]),
    st.dictionaries(st.text(max_size=8), st.text() | st.integers() | st.lists(st.text()), max_size=4),
)
def test_the_value_is_the_same(dumps: list[list[int]], write: Any, depth: int, more: dict[str, Any]) -> None:
    sharing = FrameSharing()
    for lines in dumps:
        value = {"before": more, **dump(lines, depth), "after": more}
        assert safe_pickle.load(write({**value, "after": "frames"}), sharing) == {**value, "after": "frames"}


def test_what_torch_writes_stays_as_it_is(tmp_path: Path) -> None:
    generate(tmp_path, Job(8, entries=200))
    data = (tmp_path / "nccl_trace_rank_0").read_bytes()
    assert FrameSharing().share(data) is data


@pytest.mark.parametrize("protocol", [3, 4, 5])
def test_later_protocols_stay_as_they_are(protocol: int) -> None:
    data = pickle.dumps(dump([1] * 50), protocol)
    assert FrameSharing().share(data) is data


def test_stacks_that_never_repeat_are_not_searched_for_long() -> None:
    value = dump(list(range(0, 40_000, 20)))
    data = memoizing(value)
    assert FrameSharing().share(data) is data


def test_a_part_that_is_used_again_elsewhere_is_found_in_the_original() -> None:
    value = dump([100, 200] * 20)
    value["last"] = value["entries"][30]["frames"][3]  # memoized inside a list that is not loaded again
    data = memoizing(value)
    shared = FrameSharing().share(data)
    assert shared is not data
    with pytest.raises(pickle.UnpicklingError):
        safe_pickle.load(shared)
    assert safe_pickle.load(data, FrameSharing()) == value


def test_a_text_that_looks_like_frames_is_kept() -> None:
    inner = memoizing(dump([100] * 3))
    value = dump([100] * 40)
    for entry in value["entries"]:
        entry["thread_name"] = inner.decode("latin-1") * 2
    assert safe_pickle.load(memoizing(value), FrameSharing()) == value


@pytest.mark.parametrize("cut", [0.1, 0.5, 0.9, 0.999])
def test_a_truncated_dump_is_refused_like_without_sharing(cut: float) -> None:
    data = memoizing(dump([100, 200] * 20))
    data = data[: int(len(data) * cut)]
    with pytest.raises((EOFError, pickle.UnpicklingError)) as alone:
        safe_pickle.load(data)
    with pytest.raises((EOFError, pickle.UnpicklingError)) as with_sharing:
        safe_pickle.load(data, FrameSharing())
    assert str(alone.value) == str(with_sharing.value)


def test_a_global_is_refused() -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return print, ("owned",)

    with pytest.raises(safe_pickle.HostilePickle):
        safe_pickle.load(memoizing({**dump([100] * 40), "x": Evil()}), FrameSharing())


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_damaged_bytes_never_hang_or_crash(data: st.DataObject) -> None:
    raw = bytearray(memoizing(dump([100, 200, 300] * 8)))
    for _ in range(data.draw(st.integers(1, 6))):
        raw[data.draw(st.integers(2, len(raw) - 1))] = data.draw(st.integers(0, 255))
    sharing = FrameSharing()
    sharing.share(memoizing(dump([100, 200, 300] * 8)))
    sharing.share(bytes(raw))


def test_a_list_without_an_end_is_given_up() -> None:
    data = b"\x80\x02}X\x06\x00\x00\x00framesq\x01" + b"h\x01](" * 50_000
    assert FrameSharing().share(data) is data
    assert len(data) > frame_sharing.LONGEST


@pytest.mark.parametrize("depth", [1, 2, 999, 1000, 1001, 1002, 2001])
@pytest.mark.parametrize("fast", [True, False])
def test_lists_of_one_and_of_more_than_a_thousand_keep_their_value(depth: int, fast: bool) -> None:
    shared = {"name": "f" * 200, "filename": "a.py", "line": 3}
    value = {
        "version": "2.10",
        "entries": [
            {"frames": [dict(shared) if depth < 3 else shared] * depth, "record_id": i} for i in range(20)
        ],
    }
    if not fast or depth < 3:
        data = without_memo(value) if fast else pickle.dumps(value, protocol=2)
        assert safe_pickle.load(data, FrameSharing()) == value


def test_a_list_of_one_frame_is_shared() -> None:
    value = dump([3] * 20, depth=1)
    for entry in value["entries"]:
        entry["frames"][0]["name"] = fresh("f" * 400)
    data = without_memo(value)
    loaded = safe_pickle._load(FrameSharing().share(data))
    assert loaded == value and distinct(loaded) == 1


@pytest.mark.parametrize("after", [[[1, 2]], [[1, 2]] * 300, [{"a": 1, "b": 2}], {"a": [1], "b": 2}])
def test_an_empty_list_ends_before_what_follows(after: Any) -> None:
    value = dump([3] * 20)
    for number, entry in enumerate(value["entries"]):
        more = {"input_sizes": after, "name": fresh("n" * 400)}
        frames = [] if number % 3 else entry["frames"]
        entry.clear()
        entry.update(frames=frames, **more)
    for data in (without_memo(value), pickle.dumps(value, protocol=2)):
        shared = FrameSharing().share(data)
        assert safe_pickle._load(shared) == value


@pytest.mark.parametrize("tail", [b"u", b"e", b"(u", b"]e", b"}u}u"])
def test_what_ends_otherwise_than_a_list_is_none(tail: bytes) -> None:
    data = b"]" + b"K\x01" * 200 + tail + b"u"
    assert FrameSharing()._parsed(data, 0)[0] is None


def test_marks_without_lists_take_linear_time() -> None:
    def frames(number: int) -> bytes:
        text = b"%06d" % number * 60
        return b"]q\x05(" + b"}(X\x01\x00\x00\x00aX\x68\x01\x00\x00" + text + b"u" + b"e"

    body = b"".join(b"h\x10" + frames(i % 5) for i in range(400))
    data = b"\x80\x02X\x06\x00\x00\x00framesq\x10]." + body + b"h\x10](" * 30_000
    began = time.monotonic()
    FrameSharing().share(data)
    assert time.monotonic() - began < 3
