"""Damage never raises, and a report on what is left always renders."""

from __future__ import annotations

import copy
import json
import pickle
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hangscope
from hangscope.api import Report
from tests.conftest import analyze
from tests.dump_writer import stuck, write_all

pytestmark = pytest.mark.slow


@contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


# -- damage --------------------------------------------------------------------------------------------------------


def whole_report(report: Report) -> None:
    """Render every form; none may fail, and the JSON must read back."""
    data = json.loads(report.to_json())
    assert data["status"] in ("hang", "no_hang", "inconclusive") and data["schema"] == "hangscope.report/1"
    for text in (
        report.to_text(),
        report.to_text(color=True, verbose=True, width=60),
        report.to_markdown(),
        report.to_html(),
    ):
        assert text and "Traceback" not in text
    assert len(report.table.columns) == 17


#: the dumps of a job in which rank 2 is stuck
DUMPS = [pickle.dumps(r.dump(), protocol=2) for r in stuck(4, culprit=2)]


@settings(max_examples=30)
@given(data=st.data())
def test_truncating_a_dump_at_any_byte_never_raises(data: st.DataObject) -> None:
    victim = data.draw(st.sampled_from([0, 1, 3]))
    cut = data.draw(st.integers(0, len(DUMPS[victim]) - 1))
    with folder() as top:
        for rank, content in enumerate(DUMPS):
            (top / f"nccl_trace_rank_{rank}").write_bytes(content[:cut] if rank == victim else content)
        report = analyze(top)
        assert report.verdict is not None and report.verdict.culprit_ranks == (2,)
        (told,) = [i for i in report.to_dict()["inputs"] if i["file"] == f"nccl_trace_rank_{victim}"]
        assert told["status"] in ("failed", "ignored") and told["reason"]


@settings(max_examples=30)
@given(data=st.data())
def test_truncating_every_dump_never_gives_a_traceback(data: st.DataObject) -> None:
    with folder() as top:
        for rank, content in enumerate(DUMPS):
            (top / f"nccl_trace_rank_{rank}").write_bytes(content[: data.draw(st.integers(0, len(content)))])
        try:
            whole_report(analyze(top))
        except hangscope.NoInputError as error:
            assert error.message and error.hint


def test_truncating_json_never_raises() -> None:
    with folder() as top:
        paths = [r.write_json(top) for r in stuck(4, culprit=2)]
        content = paths[1].read_bytes()
        for cut in (*range(0, 40, 4), *range(40, len(content), 2999)):
            paths[1].write_bytes(content[:cut])
            verdict = analyze(top).verdict
            assert verdict is not None and verdict.culprit_ranks == (2,)


HEADS = (
    b"",
    b"\x80\x02",
    b"\x80\x04\x95",
    b"\x80\x02}q\x00",
    b"{",
    b'{"version": "2.10", "entries": [',
    b"[",
    b"\x1f\x8b\x08",
    b"PK\x03\x04",
    b"BZh9",
    b"\x28\xb5\x2f\xfd",
    b"[rank0]: ",
    b"Traceback (most recent call last):\n",
    b"Thread 0x",
    b"NCCL version 2.27 compiled with CUDA",
    b"\xff\xfe",
)


@settings(max_examples=6)
@given(files=st.lists(st.tuples(st.sampled_from(HEADS), st.binary(max_size=300)), min_size=12, max_size=20))
def test_random_bytes_never_raise(files: list[tuple[bytes, bytes]]) -> None:
    with folder() as top:
        for rank, content in enumerate(DUMPS):
            (top / f"nccl_trace_rank_{rank}").write_bytes(content)
        for number, (head, tail) in enumerate(files):
            (top / f"noise_{number}{('', '.json', '.log', '.gz', '.tar', '.zip')[number % 6]}").write_bytes(
                head + tail
            )
        report = hangscope.analyze(top)  # in children: random bytes may ask for any amount of memory
        assert report.verdict is not None and set(report.verdict.culprit_ranks) <= {2}
        whole_report(report)


ODD_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.sampled_from([-1, 0, 1, 2**31, 2**63, 2**64]),
    st.floats(),
    st.text(max_size=12),
    st.sampled_from(
        [
            "\x1b[31mred",
            "a" * 5000,
            "<script>alert(1)</script>",
            "nccl:send 0->1",
            "nccl:recv 0<-?",
            "nccl:coalesced",
            "gloo:barrier",
            ":",
            "\ud800",
        ]
    ),
    st.lists(st.integers(-5, 5), max_size=3),
    st.lists(st.lists(st.integers(-(2**65), 2**65), max_size=2), max_size=2),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
    st.just([[]]),
    st.just({}),
    st.just([{"name": None, "filename": 3, "line": "x"}, None]),
)


@settings(max_examples=30)
@given(data=st.data())
def test_values_of_any_kind_in_a_dump_never_raise(data: st.DataObject) -> None:
    """A dump of the right shape whose fields hold anything at all."""
    with folder() as top:
        for rank, content in enumerate(DUMPS):
            dump = copy.deepcopy(pickle.loads(content))
            if rank in (0, 2):
                for _ in range(data.draw(st.integers(1, 4))):
                    change(data, dump)
            (top / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(dump, protocol=2))
        report = analyze(top)
        assert not [
            w for w in report.warnings if w.code in ("parser_failed", "rule_failed", "reader_died")
        ], report.warnings
        whole_report(report)


@pytest.mark.parametrize(("number", "which"), [(2**18, slice(1)), (2**64, slice(4))])
def test_a_forged_number_costs_neither_time_nor_memory(number: int, which: slice) -> None:
    """A rank, a member, a world or a frontier that no job can have."""
    recorders = stuck(4, culprit=2)
    dump = recorders[1].dump()
    forged = {
        "nccl_trace_rank_1": {**dump, "rank": number},
        f"nccl_trace_rank_{number}": dump,
        "members/nccl_trace_rank_1": {
            **dump,
            "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": f"[0, 1, {number}]"}},
        },
        "frontier/nccl_trace_rank_1": {
            **dump,
            "entries": [],
            "pg_status": {
                "0": {
                    "last_enqueued_collective": number,
                    "last_started_collective": 0,
                    "last_completed_collective": 3,
                }
            },
        },
    }
    log = f"[rank{number}]: boom\nnode1:7:7 [0] NCCL INFO comm 0x7f rank 0 nranks {number} cudaDev 0 busId 1000 - Init START\n"
    for name, content in list(forged.items())[which]:
        with folder() as top:
            for recorder in recorders:
                if recorder.rank != 1:
                    recorder.write(top)
            (top / name).parent.mkdir(exist_ok=True)
            (top / name).write_bytes(pickle.dumps(content, protocol=2))
            (top / "job.log").write_text(log)
            report = analyze(top)
            assert report.to_dict()["world_size"] <= 2**18
            assert report.status in ("hang", "inconclusive")


def change(data: st.DataObject, dump: dict[str, Any]) -> None:
    """Replace one value somewhere in a dump."""
    value = data.draw(ODD_VALUES)
    where = data.draw(st.sampled_from(["entry", "entry", "entry", "last", "top", "status", "config"]))
    if where in ("entry", "last") and isinstance(dump.get("entries"), list) and dump["entries"]:
        position = -1 if where == "last" else data.draw(st.integers(0, len(dump["entries"]) - 1))
        if isinstance(dump["entries"][position], dict):
            dump["entries"][position][data.draw(st.sampled_from(sorted(dump["entries"][position])))] = value
    elif (
        where == "status"
        and isinstance(dump.get("pg_status"), dict)
        and isinstance(dump["pg_status"].get("0"), dict)
    ):
        dump["pg_status"]["0"][
            data.draw(st.sampled_from(["last_enqueued_collective", "last_completed_collective"]))
        ] = value
    elif (
        where == "config"
        and isinstance(dump.get("pg_config"), dict)
        and isinstance(dump["pg_config"].get("0"), dict)
    ):
        dump["pg_config"]["0"][data.draw(st.sampled_from(["name", "desc", "ranks"]))] = value
    else:
        dump[data.draw(st.sampled_from(["version", "pg_config", "pg_status", "entries", "rank"]))] = value


@pytest.mark.parametrize(
    "left", [b"", b"\0" * 4096, bytes(range(256)) * 9, b'{"version": "2.10", "entries": [{"re', None]
)
def test_a_dump_that_was_set_aside_is_not_said_to_be_missing(tmp_path: Path, left: bytes | None) -> None:
    recorders = stuck(4, culprit=2)
    write_all(recorders, tmp_path)
    torn = next(tmp_path.glob("*rank_1"))
    torn.write_bytes(torn.read_bytes()[:900] if left is None else left)
    result = analyze(tmp_path).to_dict()
    assert result["partial"]["text"] == "dumps of 3 of 4 ranks; unusable: rank 1"
    assert [w["file"] for w in result["warnings"]] == [torn.name]
    torn.unlink()
    assert analyze(tmp_path).to_dict()["partial"]["text"] == "dumps of 3 of 4 ranks; none of rank 1"
