"""A dump in JSON is read by its forms as it would be if it were loaded, or not at all."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hangscope.ingest.recorder import flight_recorder
from hangscope.ingest.recorder.forms.json_forms import FAILURES, SMALLEST, JsonForms
from hangscope.ingest.workers import reader

sys.path.append(str(Path(__file__).resolve().parents[3] / "benchmarks"))
from dump_generator import PREFIX, Job, generate


def loaded(data: bytes) -> dict[str, Any]:
    return flight_recorder.reduce_dump(json.loads(data)).to_wire()


def dumps_of(folder: Path, job: Job) -> list[bytes]:
    generate(folder, job)
    return [(folder / f"{PREFIX}{rank}.json").read_bytes() for rank in range(job.ranks)]


def as_torch_writes(data: bytes) -> bytes:
    return json.dumps(json.loads(data), sort_keys=True, separators=(",", ":")).encode()


@pytest.mark.parametrize("layout", ["mesh", "experts", "pipeline"])
@pytest.mark.parametrize("more", [{}, {"timing": True}, {"ragged": True}], ids=str)
@pytest.mark.parametrize("write", [bytes, as_torch_writes], ids=["spaced", "sorted"])
def test_it_is_read_as_if_it_were_loaded(
    tmp_path: Path, layout: str, more: dict[str, Any], write: Any
) -> None:
    forms, by_forms = JsonForms(), 0
    for data in map(write, dumps_of(tmp_path, Job(12, entries=500, layout=layout, as_json=True, **more))):
        assert len(data) >= SMALLEST
        recording = forms.read(data)
        by_forms += recording is not None
        assert recording is None or recording.to_wire() == loaded(data)
    assert by_forms == 12 or "timing" in more


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, JsonForms]:
    """Return a dump, and what is known after its peers were read."""
    job = Job(8, entries=500, layout="experts", as_json=True)
    *others, data = map(as_torch_writes, dumps_of(tmp_path_factory.mktemp("json"), job))
    forms = JsonForms()
    assert all(forms.read(other) is not None for other in others)
    return data, forms


def the_same_or_refused(data: bytes, forms: JsonForms) -> bool:
    forms._failures = 0
    recording = forms.read(data)
    if recording is None:
        return False
    assert recording.to_wire() == loaded(data)
    return True


@pytest.mark.slow
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, 2**31), byte=st.sampled_from(b'0123456789:;<=>?-+.eE_"\\,[]{} \x00\xff'))
def test_a_changed_byte_is_seen(model: tuple[bytes, JsonForms], place: int, byte: int) -> None:
    data, forms = model
    place %= len(data)
    changed = data[:place] + bytes([byte]) + data[place + 1 :]
    try:
        json.loads(changed)
    except ValueError:  # or it is a number that nobody takes, such as one that begins with 0
        forms._failures = 0
        forms.read(changed)
    else:
        the_same_or_refused(changed, forms)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"record_id":7,', b'"record_id":07,'),
        (b'"record_id":7,', b'"record_id":-7,'),
        (b'"record_id":7,', b'"record_id":7,"record_id":9,'),
        (b'"record_id":7,', b'"record_id":7777777777777777777,'),
        (b'"record_id":7,', b'"record_id":"7",'),
        (b'"entries":[', b'"entries":[],"entries":['),
        (b'"input_dtypes":["BFloat16"]', b'"input_dtypes":["0","default_pg"]'),
        (b'"input_dtypes":["BFloat16"]', b'"input_dtypes":["","default_pg"]'),
        (b'"op_id":7,', b'"op_id":<,'),
    ],
)
def test_what_is_not_as_it_should_be(model: tuple[bytes, JsonForms], old: bytes, new: bytes) -> None:
    data, forms = model
    changed = data.replace(old, new, 1)
    assert changed != data
    try:
        json.loads(changed)
    except ValueError:
        forms._failures = 0
        assert forms.read(changed) is None
    else:
        the_same_or_refused(changed, forms)


def test_a_group_s_own_name_is_taken(model: tuple[bytes, JsonForms]) -> None:
    data, forms = model
    renamed = data.replace(b'["0","default_pg"]', b'["a \\"quoted\\" name","default_pg"]').replace(
        b'"name":"0"', b'"name":"a \\"quoted\\" name"'
    )
    assert renamed != data
    assert the_same_or_refused(renamed, forms)


def test_what_is_of_another_form_is_not_tried_for_ever() -> None:
    forms = JsonForms()
    for _ in range(FAILURES):
        assert forms.read(b"{" + b" " * SMALLEST + b"}") is None
    assert forms._failures == FAILURES


def test_the_reader_gives_the_same_answer(model: tuple[bytes, JsonForms], tmp_path: Path) -> None:
    data, _ = model
    path = tmp_path / f"{PREFIX}0.json"
    path.write_bytes(data)
    known = reader.Known()
    first = reader.read_file(str(path), "a", known=known)
    assert first == reader.read_file(str(path), "a", known=known)
    assert first["recordings"] == [loaded(data)]
