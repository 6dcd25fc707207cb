"""Numbers and names that no job has: they cost neither the time nor the memory of those who read them."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from hangscope import UsageError
from hangscope.ingest.nccl.comm import Communicator, parse_life
from hangscope.ingest.nccl.join import join_processes
from hangscope.ingest.nccl.line import parse_coll
from hangscope.ingest.recorder.flight_recorder import reduce_dump
from hangscope.ingest.recorder.members import MAX_RANKS, Members
from hangscope.ingest.recorder.recording import Recording
from hangscope.ingest.recorder.values import TENSORS_PER_CALL, p2p_sides, short_number
from hangscope.ingest.workers import reader
from tests.conftest import analyze
from tests.dump_writer import stuck


@pytest.mark.parametrize(("nranks", "known"), [(MAX_RANKS, True), (MAX_RANKS + 1, False), (9_999_999, False)])
def test_a_line_of_more_ranks_than_any_job_has_is_none_of_nccl(nranks: int, known: bool) -> None:
    life = f"ncclCommInitRank comm 0x7f rank 0 nranks {nranks} cudaDev 0 busId 1000 commId 0x1 - Init START"
    assert (parse_life(life) is not None) is known
    call = (
        "AllReduce: opCount 1 sendbuff 0x1 recvbuff 0x2 count 4 datatype 7 op 0 root 0 comm 0x7f "
        f"[nranks={nranks}] stream 0x3"
    )
    assert (parse_coll(call) is not None) is known


def test_many_communicators_of_many_ranks_are_not_filled_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hangscope.ingest.nccl.join._MEMBERS_IN_ALL", 2**18)
    recordings, communicators = [], []
    for number in range(20):
        recording = Recording("nccl_log")
        recording.group(f"g{number}", f"c{number}", "")
        recordings.append(recording)
        communicators.append(
            Communicator(
                "a.log",
                f"h{number}",
                1,
                "0x1",
                f"g{number}",
                f"c{number}",
                number,
                MAX_RANKS,
                comm_id=f"c{number}",
            )
        )
    joined = join_processes(recordings, communicators)
    assert sum(map(len, joined.members_of_group.values())) <= 2**18
    assert "too_many_communicators" in {note.code for note in joined.notes}


def _dump(**changes: Any) -> dict[str, Any]:
    dump = stuck(2, culprit=1)[0].dump()
    dump["entries"] = [{**dump["entries"][0], **changes, "collective_seq_id": i + 1} for i in range(40)]
    for number, entry in enumerate(dump["entries"]):
        entry["profiling_name"] = f"nccl:op{number}"
    return dump


@pytest.mark.slow
def test_lists_that_a_dump_shares_are_not_multiplied(tmp_path: Path) -> None:
    dump = _dump(input_sizes=[list(range(300, 1300))] * 1000, input_dtypes=["Float"] * 300_000)
    dump["entries"] = dump["entries"][:8]
    path = tmp_path / "nccl_trace_rank_0"
    path.write_bytes(pickle.dumps(dump, protocol=2))
    wire = reader.read_file(str(path), path.name)
    assert wire["status"] == "used" and len(pickle.dumps(wire)) < 8 * 2**20
    assert "sizes_cut" in {note[0] for note in wire["recordings"][0]["notes"]}


def test_an_ordinary_call_of_many_tensors_is_kept_whole() -> None:
    shapes = [[4, 1000 + i] for i in range(16_384)]
    dump = _dump(input_sizes=shapes, input_dtypes=["Float"] * len(shapes))
    recording = reduce_dump({**dump, "entries": dump["entries"][:2]})
    assert len(recording.kinds[0][2]) == len(recording.kinds[0][4]) == len(shapes) < TENSORS_PER_CALL
    assert recording.kinds[0][2][-1] == tuple(shapes[-1])


@pytest.mark.parametrize("text", ["²", "1" * 19, "9" * 5000, "", "-1", "1.0", "٣"])
def test_what_is_no_short_number(text: str) -> None:
    assert short_number(text) is None


@pytest.mark.parametrize("name", ["²", "9" * 5000])
def test_a_group_may_have_any_name(name: str, tmp_path: Path) -> None:
    for recorder in stuck(4, culprit=2):
        dump = recorder.dump()
        for entry in dump["entries"]:
            entry["process_group"] = (name, "default_pg")
        dump["pg_config"] = {"0": {**dump["pg_config"]["0"], "name": name}}
        dump["pg_status"] = {name: dump["pg_status"].pop("0")}
        (tmp_path / f"nccl_trace_rank_{recorder.rank}").write_bytes(pickle.dumps(dump, protocol=2))
    assert analyze(tmp_path).status in ("hang", "inconclusive")
    with pytest.raises(UsageError):
        analyze(tmp_path, attempt=name)


def test_a_peer_of_many_digits_is_unknown() -> None:
    assert p2p_sides(f"send 0->{'9' * 5000}") == ("send", -1, -1)


def test_runs_of_more_members_than_any_job_has_are_refused() -> None:
    with pytest.raises(ValueError, match="more members"):
        Members.of_runs(((0, 10**12, 1),))
    assert Members.of_runs(((0, 2, 1), (7, 1, 1))) == (0, 1, 7)


@pytest.mark.slow
def test_a_group_rank_that_no_job_has_makes_no_rank(tmp_path: Path) -> None:
    """Its world was cut at 32,768, and the first rank beyond it was concluded from its number in the group: a KeyError."""
    line = (
        "[E1102 19:05:51.300711023 ProcessGroupNCCL.cpp:683] [Rank {}] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum={}, OpType=ALLREDUCE, NumelIn=10, NumelOut=10, Timeout(ms)=600000) ran for 600002 milliseconds before timing out.\n"
    )
    status = (
        "[rank27]:[E312 07:30:00.488816520 ProcessGroupNCCL.cpp:2241] [PG ID 4 PG GUID 34(PIPELINE_MODEL_PARALLEL_GROUP) Rank 3]  "
        "failure detected by watchdog at work sequence id: 2 PG status: last enqueued work: 20, last completed work: 20\n"
    )
    log = tmp_path / "job.log"
    log.write_text(
        status
        + "[1,32768]<stderr>:[rank2147483647]:"
        + line.format(32768, 32768)
        + "[1,1]<stderr>:[rank3]:"
        + line.format(3, 32768)
    )
    report = analyze(log)
    assert report.status == "hang" and report.to_dict()["world_size"] <= 32768
    assert report.verdict is None or 32768 not in report.verdict.culprit_ranks
    report.to_html()
