"""A dump is read as if it were loaded, whether it is like a template, has entries of known forms, or neither."""

from __future__ import annotations

import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hangscope.ingest.recorder import flight_recorder, safe_pickle
from hangscope.ingest.recorder.fast.entry_forms import NotPlain
from hangscope.ingest.recorder.fast.templates import SIGHTINGS, SMALLEST, UNUSED, Templates
from hangscope.ingest.workers import reader

sys.path.append(str(Path(__file__).resolve().parents[4] / "benchmarks"))
from dump_generator import PREFIX, Job, generate

RANKS = 24


def loaded(data: bytes) -> dict[str, Any]:
    return flight_recorder.reduce_dump(safe_pickle.load(data)).to_wire()


def taught(dumps: list[bytes]) -> Templates:
    """Return what is known after `dumps` were read."""
    templates = Templates()
    for data in dumps:
        assert templates.read(data) is not None
    return templates


def by_template(templates: Templates, data: bytes) -> Any:
    """Return the recording of a dump that is like a template, None of any other."""

    class NoForms:
        def read(self, *_: Any) -> None:
            raise NotPlain

    forms, templates._forms = templates._forms, NoForms()  # type: ignore[assignment]
    try:
        return templates.read(data)
    finally:
        templates._forms = forms


def dumps_of(folder: Path, job: Job) -> list[bytes]:
    generate(folder, job)
    return [(folder / f"{PREFIX}{rank}").read_bytes() for rank in range(job.ranks)]


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """Return the dumps of a mesh job, by rank."""
    return dumps_of(tmp_path_factory.mktemp("mesh"), Job(RANKS, entries=500, layout="mesh"))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, Templates]:
    """Return a dump, and what is known after it was seen often enough."""
    data = dumps_of(tmp_path_factory.mktemp("world"), Job(8, entries=500, layout="world"))[0]
    return data, taught([data] * SIGHTINGS)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, Templates]:
    """Return a dump with stacks and sizes of its own, and what is known after its peers were read."""
    job = Job(16, entries=600, layout="experts", own_stacks=True)
    *others, data = dumps_of(tmp_path_factory.mktemp("own"), job)
    return data, taught(others)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, Templates]:
    """Return a dump that differs from its peers' in files of its own, and what is known after those were read."""
    job = Job(8, entries=500, layout="world", own_stacks=True)
    *others, data = dumps_of(tmp_path_factory.mktemp("compiled"), job)
    return data, taught(others)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layout", "more"),
    [
        ("mesh", {}),
        ("mesh", {"ragged": True}),
        ("experts", {"own_stacks": True, "timing": True}),
        ("pipeline", {"timing": True}),
    ],
)
def test_a_dump_is_read_as_if_it_were_loaded(layout: str, more: dict[str, bool], tmp_path: Path) -> None:
    """Dumps as torch writes them are never loaded, whatever the job."""
    templates = Templates()
    entries = 1000 if layout == "pipeline" else 500  # smaller dumps are not worth a template
    for data in dumps_of(tmp_path, Job(16, entries=entries, layout=layout, **more)):
        recording = templates.read(data)
        assert recording is not None
        assert recording.to_wire() == loaded(data)


@pytest.mark.slow
def test_entries_of_a_known_form_are_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later dump loads only the entries that write texts or frames, though its buffer begins with another entry."""
    from hangscope.ingest.recorder.fast import entry_forms

    loads = []
    real = entry_forms.safe_pickle.load_part
    monkeypatch.setattr(
        entry_forms.safe_pickle, "load_part", lambda *parts: loads.append(parts[0]) or real(*parts)
    )
    dumps = dumps_of(tmp_path, Job(RANKS, entries=1000, layout="mesh", ragged=True))
    templates = taught(dumps[:-1])
    loads.clear()
    recording = templates.read(dumps[-1])
    assert recording is not None and recording.to_wire() == loaded(dumps[-1])
    assert len(loads) < 60


def test_files_of_a_ranks_own_are_no_difference(compiled: tuple[bytes, Templates]) -> None:
    data, templates = compiled
    recording = by_template(templates, data)
    assert recording is not None and recording.to_wire() == loaded(data)
    assert any("rank_000007" in file for stack in recording.stacks for _, file, _ in stack)


@pytest.mark.parametrize("timing", [False, True])
def test_ranks_of_one_role_are_like_a_template(timing: bool, tmp_path: Path) -> None:
    dumps = dumps_of(tmp_path, Job(32, entries=1000, layout="pipeline", timing=timing))
    templates = taught(dumps)
    assert min(map(len, dumps)) > SMALLEST
    like = sum(by_template(templates, data) is not None for data in dumps)
    assert like == 31  # all but the culprit, the only one of its kind


def test_the_names_of_its_groups_are_its_own(dumps: list[bytes]) -> None:
    recording = by_template(taught(dumps[:4]), dumps[12])
    assert recording is not None
    assert sorted(recording.groups) == [
        ("0", "0", "default_pg"),
        ("1", "2", "mesh_tp"),
        ("2", "8", "mesh_dp"),
    ]
    assert (
        recording.columns["created"]
        == flight_recorder.reduce_dump(safe_pickle.load(dumps[12])).columns["created"]
    )


@pytest.mark.slow
def test_one_process_reads_all_ranks_like_many_do(dumps: list[bytes], tmp_path: Path) -> None:
    known = Templates()
    for rank, data in enumerate(dumps):
        (tmp_path / "dump").write_bytes(data)
        answer = reader.read_file(str(tmp_path / "dump"), f"{PREFIX}{rank}", known=known)
        assert answer == reader.read_file(str(tmp_path / "dump"), f"{PREFIX}{rank}")


@pytest.mark.parametrize(
    ("old", "new", "alike"),
    [
        (b"\x00completed", b"\x00scheduled", False),  # a state
        (b"trainer.py", b"trained.py", True),  # a frame's text, which may be a rank's own
        (b"trainer.py", b"traine\xc3\xa9", False),  # but not one that is no ASCII
        (b"wrapper", b"forward", False),  # nor one that is another of its texts
        (b"nccl:all_reduce", b"nccl:all_gather", False),  # an op
        (b"default_pg", b"default_qg", True),  # the name of its group, in the head
        (b"2.27.5", b"2.27.6", True),  # the version of NCCL, in the head, which no call refers to
    ],
)
def test_a_difference_is_seen(model: tuple[bytes, Templates], old: bytes, new: bytes, alike: bool) -> None:
    data, templates = model
    other = data.replace(old, new, 1)
    assert other != data
    like = by_template(templates, other)
    assert (like is not None) == alike
    for recording in (like, Templates().read(other), templates.read(other)):
        assert recording is None or recording.to_wire() == loaded(other)


def test_what_is_cut_or_longer_is_left_to_loading(model: tuple[bytes, Templates]) -> None:
    data, templates = model
    assert templates.read(data) is not None
    for other in (data[:-1], data[: len(data) // 2], data + b".", b"", b"\x80\x02}."):
        assert templates.read(other) is None


@pytest.mark.parametrize("inserted", [b"cos\nsystem\n0", b"N.", b"\x95"])
def test_a_head_that_is_not_plain_is_left_to_loading(model: tuple[bytes, Templates], inserted: bytes) -> None:
    """It asks for a global, ends the pickle, or holds an opcode that torch does not write."""
    data, templates = model
    split = data.index(b"X\x07\x00\x00\x00entries")
    assert templates.read(data[:split] + inserted + data[split:]) is None


@pytest.mark.slow
@pytest.mark.parametrize("which", ["model", "own", "compiled"])
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(draws=st.data())
def test_whatever_changes_in_a_dump_it_is_read_like_a_load(
    request: pytest.FixtureRequest, which: str, draws: st.DataObject
) -> None:
    data, templates = request.getfixturevalue(which)
    raw = bytearray(data)
    near = (
        data.index(b"X\x07\x00\x00\x00entries") + 1500
    )  # the head and the first entries hold every kind of value
    for _ in range(draws.draw(st.integers(1, 3))):
        raw[draws.draw(st.integers(2, near) | st.integers(2, len(raw) - 1))] = draws.draw(st.integers(0, 255))
    for recording in (templates.read(bytes(raw)), Templates().read(bytes(raw))):
        if recording is not None:
            with suppress(MemoryError):  # a number of the memo may be one that a load makes room for
                assert recording.to_wire() == loaded(bytes(raw))


def test_the_order_of_memo_numbers_in_the_head_matters() -> None:
    """The entries refer to the head by number: if it has another text there, they are other collectives."""
    texts = ["nccl:all_reduce", "nccl:all_gather", "completed", "profiling_name", "state", "pg_id", "is_p2p"]
    texts += ["record_id", "collective_seq_id", "p2p_seq_id", "time_created_ns"]

    def dump(texts: list[str]) -> bytes:
        head = b"".join(
            b"X" + len(t).to_bytes(4, "little") + t.encode() + b"q%c" % n for n, t in enumerate(texts)
        )
        entry = b"}(h\x03h\x00h\x04h\x02h\x05K\x00h\x06\x89h\x07M%bh\x08M%bh\x09K\x00h\x0a\x8a\x08%bu"
        numbers = [(256 + i).to_bytes(2, "little") for i in range(2000)]
        entries = [entry % (n, n, (10**18 + i).to_bytes(8, "little")) for i, n in enumerate(numbers)]
        return (
            b"\x80\x02}(X\x05\x00\x00\x00texts](" + head + b"eX\x07\x00\x00\x00versionX\x04\x00\x00\x002.10"
            b"X\x07\x00\x00\x00entries](" + b"".join(entries) + b"eu."
        )

    one, other = dump(texts), dump([texts[1], texts[0], *texts[2:]])
    assert len(one) == len(other) > SMALLEST
    templates = taught([one] * SIGHTINGS)
    for data in (one, other):
        recording = templates.read(data)
        assert recording is not None and recording.to_wire() == loaded(data)
    assert loaded(one) != loaded(other)


def test_templates_that_nobody_is_like_are_not_made_for_long(tmp_path: Path, monkeypatch: Any) -> None:
    from hangscope.ingest.recorder.fast import templates as module

    made = []
    real = module._template
    monkeypatch.setattr(module, "_template", lambda *parts: made.append(1) or real(*parts))
    first, *_ = dumps_of(tmp_path, Job(8, entries=500, layout="world"))
    op = b"nccl:all_reduce"
    taught([first.replace(op, b"nccl:%0*d" % (len(op) - 5, n)) for n in range(2 * UNUSED)])
    assert len(made) == UNUSED


def test_a_dump_of_torchcomms_is_loaded(dumps: list[bytes]) -> None:
    theirs = dumps[0]
    for text in set(re.findall(rb"\[\d[\d, ]*\]", theirs)):
        members = text[1:-1].replace(b" ", b"")
        theirs = theirs.replace(
            len(text).to_bytes(4, "little") + text, len(members).to_bytes(4, "little") + members
        )
    assert any(note[0] == "torchcomms" for note in loaded(theirs)["notes"])
    templates = taught(dumps[:4])
    assert templates.read(theirs) is None
    assert Templates().read(theirs) is None
