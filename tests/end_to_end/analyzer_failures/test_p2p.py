"""Failures of torch's analyzer: point-to-point calls.

What torch 2.13's own analyzer gets wrong, one test per known failure: same inputs, the known truth. Each docstring says
what that analyzer does with such an input. Nothing here may end in silence, in a traceback or in a verdict against a rank
that did nothing wrong.
"""

from __future__ import annotations

from pathlib import Path

from tests.conftest import analyze
from tests.dump_writer import Recorder, job, write_all
from tests.text_lines import timeout
from tests.verdicts import blame, culprits, said

# -- F8 to F11: point-to-point -------------------------------------------------------------------------------------


def test_f8_a_healthy_exchange_in_one_batch(tmp_path: Path) -> None:
    """Two false mismatches: on a peer's own send, and because `nccl:coalesced` is not accepted as a batch's end."""
    recorders = job(2)
    for recorder in recorders:
        for _ in range(6):
            peer = 1 - recorder.rank
            recorder.batch([("send", peer), ("recv", peer)]).call("all_reduce")
    report = analyze(write_all(recorders, tmp_path))
    assert report.status == "no_hang", said(report)


def test_f9_a_healthy_send_within_a_larger_group(tmp_path: Path) -> None:
    """ "Not all ranks joining": it expects a send between two ranks on all members of their group."""
    recorders = job(3)
    for _ in range(5):
        recorders[0].send(1)
        recorders[1].recv(0)
        for recorder in recorders:
            recorder.call("all_reduce")
    report = analyze(write_all(recorders, tmp_path))
    assert report.status == "no_hang", said(report)


def test_f9_a_send_waits_only_for_its_receiver(tmp_path: Path) -> None:
    """The other members of the group have no part in it, and no blame."""
    recorders = job(3)
    for recorder in recorders:
        recorder.call("all_reduce", times=4)
    recorders[0].send(1, state="scheduled")
    write_all(recorders, tmp_path)
    (tmp_path / "rank0.log").write_text(
        timeout(0, op="SEND", seq=1) + "\n"
    )  # two of three in no call may be of a job that moves
    report = analyze(tmp_path)
    assert culprits(report) == (1,)
    assert (
        report.verdict is not None
        and report.verdict.is_p2p
        and report.verdict.op == "send"
        and report.verdict.waiting_ranks == (0,)
    )


def test_f10_a_send_numbered_like_the_next_collective(tmp_path: Path) -> None:
    """AssertionError "can't get dst of non-p2p op" when p2p_seq_id equals the next collective_seq_id."""
    recorders = job(2)
    recorders[0].send(1).call("all_reduce")
    recorders[1].recv(0).call("all_reduce")
    assert recorders[0].entries[0]["p2p_seq_id"] == recorders[0].entries[1]["collective_seq_id"] == 1
    report = analyze(write_all(recorders, tmp_path))
    assert report.status == "no_hang", said(report)
    assert sorted(report.table["op"]) == ["all_reduce", "all_reduce", "recv", "send"]


def pipeline(
    steps: int = 4, microbatches: int = 4, *, skip: tuple[int, int, int] | None = None
) -> list[Recorder]:
    """Return a pipeline of 4 stages. `skip`: (rank, step, microbatch) whose send down the pipeline is left out."""
    recorders = job(4)
    for recorder in recorders:
        for step in range(steps):
            last = skip is not None and step == skip[1]
            for microbatch in range(microbatches):
                # Behind a lost send every later one meets the receive before its own, and the last receive meets none.
                starved = (
                    skip is not None and last and recorder.rank > skip[0] and microbatch == microbatches - 1
                )
                if recorder.rank:
                    recorder.recv(recorder.rank - 1, state="scheduled" if starved else "completed", line=61)
                    if starved:
                        break
                if recorder.rank < 3 and skip != (recorder.rank, step, microbatch):
                    recorder.send(recorder.rank + 1, line=63)
            else:
                recorder.call("all_reduce", sizes=[[1]], line=70, state="scheduled" if last else "completed")
                if last:
                    break
                continue
            break
    return recorders


def test_f11_a_healthy_pipeline(tmp_path: Path) -> None:
    """Eleven false reports on completed sends."""
    report = analyze(write_all(pipeline(), tmp_path))
    assert report.status == "no_hang", said(report)


def test_f11_the_missing_send_of_a_pipeline_is_named(tmp_path: Path) -> None:
    """The send that is missing is never named; here the stage that left it out is, and who waits for it."""
    report = analyze(write_all(pipeline(skip=(1, 3, 2)), tmp_path))
    verdict = report.verdict
    assert blame(report) == ("hang", "p2p_mismatch", (1,)), said(report)
    assert (
        verdict is not None
        and verdict.is_p2p
        and verdict.op == "recv"
        and set(verdict.waiting_ranks) == {0, 2, 3}
    )
