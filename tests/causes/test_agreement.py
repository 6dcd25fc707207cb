"""What members must agree on besides the call: who is the root, who the members are, and what comes back."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import analyze
from tests.dump_writer import Recorder, world, write_all
from tests.text_lines import judged, short

SIZE = 6
EACH = [[32, 4]] * SIZE  # a buffer for each member
NONE: list[list[int]] = [[]]  # what all but the root pass


def _gathers(rank: int, *, as_root: bool = False) -> Recorder:
    recorder = Recorder(rank, world(SIZE))
    for _ in range(6):
        recorder.call("all_reduce", times=3)
        recorder.call("gather", sizes=[[32, 4]], outputs=EACH if rank == 0 else NONE)
    recorder.call("all_reduce", times=3)
    outputs = EACH if rank == 0 or as_root else NONE
    waits = rank == 0 or as_root
    state = "scheduled" if waits else "completed"
    recorder.call("gather", sizes=[[32, 4]], outputs=outputs, state=state)
    return recorder if waits else recorder.call("all_reduce", state="scheduled")


def test_who_has_the_buffers_of_a_root_for_the_first_time_passed_another_root(tmp_path: Path) -> None:
    report = analyze(write_all((_gathers(r, as_root=r == 4) for r in range(SIZE)), tmp_path))
    assert short(report) == ("collective_mismatch", (4,), "high")
    assert "rank 4 has a buffer for each member" in " ".join(e.text.lower() for e in judged(report).evidence)


def test_the_usual_root_alone_is_no_other_root(tmp_path: Path) -> None:
    report = analyze(write_all(map(_gathers, range(SIZE)), tmp_path))
    assert short(report)[0] != "collective_mismatch"


def _with_metrics(rank: int, *, listed: dict[int, tuple[int, ...]]) -> Recorder:
    third = rank % 3
    members = listed.get(rank, (third, third + 3))
    recorder = Recorder(rank, {**world(6), str(1 + third): ("metric", members)})
    recorder.call("all_reduce", times=20)
    if third:
        recorder.call("all_reduce", str(1 + third))
        return recorder.call("barrier", state="scheduled")
    return recorder


def test_a_group_that_one_rank_made_of_other_members_never_forms(tmp_path: Path) -> None:
    report = analyze(write_all((_with_metrics(r, listed={3: (0, 2, 3)}) for r in range(6)), tmp_path))
    verdict = judged(report)
    assert (verdict.cause, verdict.culprit_ranks) == ("init_hang", (3,))
    assert "rank 3 created group 1" in verdict.title.lower()


def test_groups_of_one_name_that_share_nobody_are_no_disagreement(tmp_path: Path) -> None:
    report = analyze(write_all((_with_metrics(r, listed={}) for r in range(6)), tmp_path))
    assert judged(report).cause != "init_hang"


def _ends_elsewhere(rank: int) -> Recorder:
    recorder = Recorder(rank, world(SIZE), backend="gloo").call("all_reduce", times=9)
    waits = rank in (1, 3)
    state = "scheduled" if waits else "completed"
    recorder.call("gather", sizes=[[32, 4]], outputs=EACH if rank == 1 else NONE, state=state)
    return recorder if waits else recorder.call("all_reduce", state="scheduled")


def test_who_waits_in_a_gather_besides_its_root_sends_to_another_one(tmp_path: Path) -> None:
    report = analyze(write_all(map(_ends_elsewhere, range(SIZE)), tmp_path))
    assert short(report) == ("collective_mismatch", (3,), "medium")
    assert "rank 3 has not completed the gather" in " ".join(e.text.lower() for e in judged(report).evidence)
