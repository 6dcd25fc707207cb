"""A dump is read as it would be if it were loaded, whether it is like a template, has known entries, or neither."""

from __future__ import annotations

import pickle
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hangscope.ingest.recorder import flight_recorder, safe_pickle
from hangscope.ingest.recorder.forms.entry_parts import NotPlain
from hangscope.ingest.recorder.templates import SIGHTINGS, SMALLEST, UNUSED, Templates
from hangscope.ingest.workers import reader

sys.path.append(str(Path(__file__).resolve().parents[3] / "benchmarks"))
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


@pytest.mark.parametrize("layout", ["mesh", "experts", "pipeline"])
@pytest.mark.parametrize(
    "more", [{}, {"timing": True}, {"ragged": True}, {"own_stacks": True, "timing": True}], ids=str
)
def test_a_dump_is_read_as_if_it_were_loaded(layout: str, more: dict[str, bool], tmp_path: Path) -> None:
    """Dumps as torch writes them are never loaded, whatever the job."""
    templates = Templates()
    for data in dumps_of(tmp_path, Job(RANKS, entries=1000, layout=layout, **more)):
        recording = templates.read(data)
        assert recording is not None
        assert recording.to_wire() == loaded(data)


def test_stacks_of_a_ranks_own_are_parsed_for_the_first_rank_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hangscope.ingest.recorder.forms import form_reader

    parsed = []
    real = form_reader.parse
    monkeypatch.setattr(form_reader, "parse", lambda *parts: parsed.append(1) or real(*parts))
    dumps = dumps_of(tmp_path, Job(RANKS, entries=1000, layout="mesh", own_stacks=True))
    templates = taught(dumps[:8])
    before = len(parsed)
    recording = templates.read(dumps[9])
    assert recording is not None and recording.to_wire() == loaded(dumps[9])
    assert 0 < before == len(parsed)


def test_files_of_a_ranks_own_are_no_difference(compiled: tuple[bytes, Templates]) -> None:
    data, templates = compiled
    recording = by_template(templates, data)
    assert recording is not None and recording.to_wire() == loaded(data)
    assert any("rank_000007" in file for stack in recording.stacks for _, file, _ in stack)


@pytest.mark.parametrize("known", [0, 8], ids=["in the first dump", "in a later one"])
def test_steps_that_repeat_themselves_are_read_as_one(known: int, tmp_path: Path) -> None:
    from hangscope.ingest.recorder.forms.form_reader import Reader

    dumps = dumps_of(tmp_path, Job(RANKS, entries=1000, layout="mesh", ragged=True))
    templates = taught(dumps[:known])
    together = []

    def read(self: Any, *where: Any) -> Any:
        before = len(self.found.forms)
        behind = real(self, *where)
        together.append(len(self.found.forms) - before)
        return behind

    real, Reader._stretches = Reader._stretches, read  # type: ignore[method-assign]
    try:
        templates._templates.clear()
        assert templates.read(dumps[3]) is not None
    finally:
        Reader._stretches = real  # type: ignore[method-assign]
    assert sum(together) > 1000 * 3 // 5


@pytest.mark.parametrize("timing", [False, True])
def test_ranks_of_one_role_are_like_a_template(timing: bool, tmp_path: Path) -> None:
    dumps = dumps_of(tmp_path, Job(64, entries=2000, layout="pipeline", timing=timing))
    templates = taught(dumps)
    assert min(map(len, dumps)) > SMALLEST
    like = sum(by_template(templates, data) is not None for data in dumps)
    assert like == 63  # all but the culprit, the only one of its kind


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


def test_one_process_reads_all_ranks_like_many_do(dumps: list[bytes], tmp_path: Path) -> None:
    known = reader.Known()
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
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
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
    """The calls refer to the head by number: where another text stands behind it, they are other calls."""

    def dump(first: str, second: str) -> bytes:
        texts = b"".join(
            b"X" + len(t).to_bytes(4, "little") + t.encode() + b"q%c" % n
            for n, t in ((0, first), (1, second))
        )
        body = bytearray()
        for i in range(1000):
            entry = pickle.dumps(
                {"note": "x" * 60, "pg_id": 0, "state": "completed", "record_id": 256 + i, "collective_seq_id": 256 + i,
                 "p2p_seq_id": 0, "time_created_ns": 10**18 + i, "is_p2p": False}, protocol=2,
            )  # fmt: skip
            entry = _without_memo(entry)
            body += entry[:-1] + b"X\x0e\x00\x00\x00profiling_name" + b"h\x00u"
        return (
            b"\x80\x02}(X\x05\x00\x00\x00texts]("
            + texts
            + b"eX\x07\x00\x00\x00version"
            + (b"X\x04\x00\x00\x002.10X\x07\x00\x00\x00entries](" + bytes(body) + b"eu.")
        )

    one, other = dump("nccl:all_reduce", "nccl:all_gather"), dump("nccl:all_gather", "nccl:all_reduce")
    assert len(one) == len(other) > SMALLEST
    templates = taught([one] * SIGHTINGS)
    assert by_template(templates, one) is not None
    assert by_template(templates, other) is None
    recording = templates.read(other)
    assert recording is not None and recording.to_wire() == loaded(other)
    assert loaded(one) != loaded(other)


def _without_memo(data: bytes) -> bytes:
    """Return a pickle of one dict of plain values as torch writes it: nothing memoized, and without head and end."""
    import pickletools

    operations = list(pickletools.genops(data))
    ends = [at for _, _, at in operations[1:]] + [len(data)]
    kept = [
        data[at:end]
        for (code, _, at), end in zip(operations, ends, strict=True)  # type: ignore[type-var]
        if code.name not in ("PROTO", "STOP") and "PUT" not in code.name
    ]
    return b"".join(kept)


def test_templates_that_nobody_is_like_are_not_made_for_long(tmp_path: Path, monkeypatch: Any) -> None:
    from hangscope.ingest.recorder import templates as module

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
