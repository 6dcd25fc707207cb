"""Sizes in which members of a call may legally differ are the call's own: kinds of call do not multiply with them."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import pytest

from hangscope.align.matching import hard_keys
from hangscope.export.pack import pack
from hangscope.ingest.assemble import assemble
from hangscope.ingest.recorder.members import Interner
from hangscope.ingest.workers import reader
from hangscope.ingest.workers.reading import Reading
from hangscope.ingest.workers.wire_check import BadAnswer, check_wire
from hangscope.model.incident import Incident
from tests.conftest import analyze

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
from dump_generator import PREFIX, Job, generate

RANKS = 16


@pytest.fixture(scope="module")
def experts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("experts")
    generate(folder, Job(RANKS, entries=200, layout="experts"))
    return folder


@pytest.fixture(scope="module")
def incident(experts: Path) -> Incident:
    interner = Interner()
    return assemble(
        [
            Reading.from_wire(path.name, reader.read_file(str(path), path.name), interner)
            for path in sorted(experts.iterdir())
        ]
    )


def entries(experts: Path, rank: int) -> list[dict[str, Any]]:
    return list(pickle.loads((experts / f"{PREFIX}{rank}").read_bytes())["entries"])


def test_kinds_are_as_many_as_lines_of_code_call(incident: Incident, experts: Path) -> None:
    lines = {(e["profiling_name"], e["frames"][2]["line"]) for e in entries(experts, 0)}
    assert len(incident.kinds.alone) <= len(lines) < len(incident.kinds) / 50


def test_every_call_has_the_sizes_that_its_dump_says(incident: Incident, experts: Path) -> None:
    keys = hard_keys(incident.kinds)
    for rank in (0, RANKS - 1):
        told = {e["record_id"]: (e["input_sizes"], e["output_sizes"]) for e in entries(experts, rank)}
        seen = 0
        for queue in incident.ranks[rank].queues.values():
            for order, index in zip(queue.order.tolist(), queue.kind.tolist(), strict=True):
                kind = incident.kinds[index]
                sizes = [list(map(list, part)) for part in (kind.input_sizes, kind.output_sizes)]
                assert tuple(sizes) == told[order]
                seen += 1
            matching = {int(keys[k]) for k in queue.kind if incident.kinds[int(k)].op == "all_to_all"}
            assert len(matching) <= 1
        assert seen == len(told)


def test_ranks_whose_routers_chose_otherwise_share_all_columns_of_their_calls(incident: Incident) -> None:
    seqs = {id(queue.seq) for record in incident.ranks.values() for queue in record.queues.values()}
    assert len(seqs) == 9  # three roles with three groups each


def test_a_verdict_shows_the_sizes_of_its_calls_and_a_pack_keeps_them(experts: Path, tmp_path: Path) -> None:
    report = analyze(experts)
    assert report.verdict is not None and report.verdict.waiting_call is not None
    assert report.verdict.op == "all_to_all"
    rank = min(report.verdict.in_call)
    last = entries(experts, rank)[-1]
    assert [list(shape) for shape in report.verdict.waiting_call.sizes] == last["input_sizes"]
    pack([experts], tmp_path / "all.hangpack")
    packed = analyze(tmp_path / "all.hangpack").verdict
    assert packed is not None and packed.waiting_call == report.verdict.waiting_call


@pytest.mark.parametrize(
    "forged",
    [
        (b"", [((1,), (1,))], b"", b""),  # fewer than there are calls
        (b"\x09\0\0\0" * 88, [((1,), (1,))], b"\0\0\0\0", bytes(16)),  # of the tenth of one
        (bytes(4 * 88), [((2,), (1,))], b"\0\0\0\0", bytes(16)),  # with two numbers of three
        (bytes(4 * 88), [((-1,), (3,))], b"\0\0\0\0", bytes(16)),
    ],
)
def test_forged_sizes_are_refused(experts: Path, forged: tuple[object, ...]) -> None:
    wire = reader.read_file(str(experts / f"{PREFIX}0"), "x")
    check_wire("x", wire, Interner())
    wire["recordings"][0]["own_sizes"] = forged
    with pytest.raises(BadAnswer):
        check_wire("x", wire, Interner())
