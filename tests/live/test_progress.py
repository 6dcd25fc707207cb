"""When a job stands still: from its first progress on, with its own pauses, and with work that is seen."""

from __future__ import annotations

import json
import os
import signal
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from hangscope.ingest.files.sources import find_files
from hangscope.live.folder import RunFolder
from hangscope.live.look.activity import Activity, Work, leave_activity
from hangscope.live.look.processes import Process, Status
from hangscope.live.watch import watcher as watching
from hangscope.live.watch.captures import Stalls
from hangscope.live.watch.job import Streams
from hangscope.live.watch.link import Link, Options
from hangscope.live.watch.nodes import Nodes
from hangscope.live.watch.progress import SHORT, START, Look, Patience, busy, mark_of
from hangscope.live.watch.reporting import Reporting, write_evidence
from hangscope.live.watch.watcher import Watcher


def look(
    time: float,
    *changes: int,
    printed: int = 0,
    moves: int = 0,
    work: str = "",
    cpu: float = 0.0,
    by_calls: bool = True,
    launcher: int = 0,
) -> Look:
    """Return a look at as many ranks as there are `changes`, each of which has printed `printed` bytes."""
    ranks = [
        Status(100 + r, r, len(changes), by_calls, n, printed, moves, work) for r, n in enumerate(changes)
    ]
    return Look(time, ranks, launcher, {rank.pid: cpu for rank in ranks})


def test_nothing_is_frozen_before_its_first_progress() -> None:
    patience = Patience(10)
    assert not any(patience.frozen(look(time)) for time in range(100))
    assert not any(patience.frozen(look(time, 0, 0)) for time in range(100, 200))
    assert not patience.stands_still(START - 1) and patience.stands_still(START)


def test_calls_count_where_a_recorder_tells_of_them_and_output_does_not() -> None:
    patience = Patience(10)
    assert not patience.frozen(look(0, 1, 1))
    assert [patience.frozen(look(time, 1, 1, printed=time)) for time in (5, 9, 10)] == [False, False, True]
    assert not patience.frozen(look(11, 1, 2)), "one rank that goes on is progress"


def test_output_of_ranks_counts_where_no_recorder_tells() -> None:
    patience = Patience(10)
    looks = [look(time, 0, 0, printed=1, by_calls=False, launcher=time) for time in (0, 9, 10)]
    assert [patience.frozen(each) for each in looks] == [False, False, True]


def test_what_ranks_print_before_their_first_call_is_no_progress() -> None:
    patience = Patience(10)
    assert not any(patience.frozen(look(time, 0, 0, printed=1)) for time in range(100))


def test_the_launchers_word_counts_where_no_rank_shows_itself() -> None:
    patience = Patience(10)
    looks = [look(time, launcher=min(time, 40)) for time in range(100)]
    assert [patience.frozen(each) for each in looks].index(True) == 50
    patience = Patience(10)
    assert not any(patience.frozen(look(time, launcher=1)) for time in range(100)), (
        "it said so while it started"
    )
    assert not patience.frozen(look(100, 0, 0, launcher=2)) and not patience.frozen(
        look(200, 0, 0, launcher=2)
    )


def test_a_pause_that_it_came_back_from_is_its_own_time() -> None:
    patience = Patience(10)
    patience.frozen(look(0, 1))
    assert patience.frozen(look(20, 1)) and not patience.frozen(look(30, 2))  # a checkpoint of half a minute
    assert [patience.frozen(look(time, 2)) for time in (60, 74, 75)] == [False, False, True]


def test_work_that_is_seen_has_four_times_as_long() -> None:
    for seen in ({"work": "compile"}, {}):
        patience = Patience(10)
        patience.frozen(look(0, 1))
        times = [
            time
            for time in range(1, 60)
            if patience.frozen(look(time, 1, moves=time, cpu=float(time), **seen))
        ]  # type: ignore[arg-type]
        assert times[0] == 40


def test_work_on_another_node_counts_here(tmp_path: Path) -> None:
    here, there = Nodes(tmp_path), Nodes(tmp_path)
    there.name = "other.7"
    before = here.works_elsewhere()
    here.show("works")
    assert here.works_elsewhere() == before == 0
    there.show("works")
    assert here.works_elsewhere() != before
    patience = Patience(10)
    patience.frozen(look(0, 1))
    looks = [replace(look(time, 1), elsewhere=time // 5) for time in range(1, 60)]
    assert next(each.time for each in looks if patience.frozen(each)) == 40
    assert not patience.active, "what others do is theirs to say"


def test_a_thread_that_waits_busily_is_at_no_work() -> None:
    patience = Patience(10)
    patience.frozen(look(0, 1))
    assert [patience.frozen(look(time, 1, cpu=float(time))) for time in (9, 10)] == [False, True]


def test_a_step_is_no_standstill() -> None:
    patience = Patience()
    patience.frozen(look(0, 1))
    assert not patience.stands_still(SHORT - 1) and patience.stands_still(SHORT)
    patience.frozen(look(SHORT, 2))
    assert not patience.stands_still(2 * SHORT)  # a job of slow steps


def test_what_the_watcher_prints_is_no_output_of_the_job(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    reporting = Reporting(RunFolder(tmp_path), Nodes(tmp_path), Options())
    reporting.say("before the start")
    streams = Streams(os.getpid(), reporting.printed)
    os.write(2, b"step 1\n")
    reporting.say("capturing the job")
    os.write(2, b"step 2\n")
    streams.keep(tmp_path, "node")
    assert streams.bytes == len("step 1\nstep 2\n")
    assert (tmp_path / "node.err").read_text() == "step 1\nstep 2\n"
    assert "capturing the job" in capfd.readouterr().err


def test_one_node_reports_and_waits_for_the_others(tmp_path: Path) -> None:
    first, second = Nodes(tmp_path), Nodes(tmp_path)
    second.name = "other.7"
    (tmp_path / "nodes" / "other.7.here").touch()
    assert first.others() == {"other.7"}
    assert [node.reporter() for node in (first, second, first)] == [first.name] * 3
    assert first.late() == {"other.7"}
    second.show("done")
    assert first.late() == set()


def test_a_node_does_not_end_its_ranks_before_the_other_has_written_the_report(tmp_path: Path) -> None:
    folder, nodes = RunFolder(tmp_path), Nodes(tmp_path)
    (tmp_path / "nodes" / "reporter").write_text("other.7")
    reporting = Reporting(folder, nodes, Options(quiet=True))
    text = '{"status": "hang", "verdict": {"culprit_ranks": [3]}}'
    writer = threading.Timer(0.5, (folder.path / "report.json").write_text, [text])
    writer.start()
    reporting.report(20.0, wait=0.0, hurry=lambda: False)
    assert (folder.path / "report.json").exists() and reporting.settled
    assert (reporting.status, reporting.culprits) == ("hang", {3})
    writer.join()
    (folder.path / "report.json").unlink()
    reporting.report(20.0, wait=0.0, hurry=lambda: True)  # asked twice: at once
    reporting.report(20.0, wait=0.0, hurry=lambda: False, job_is_over=True)
    assert not (folder.path / "report.json").exists()


def test_a_start_without_progress_has_a_limit_of_its_own() -> None:
    patience = Patience(10, 50)
    assert [patience.frozen(look(time, 0, 0)) for time in (0, 49, 50)] == [False, False, True]
    assert not patience.started and patience.stands_still(50)
    assert not patience.frozen(look(51, 1, 0)) and patience.started
    assert [patience.frozen(look(time, 1, 0)) for time in (60, 61)] == [False, True]
    patience = Patience(10, 50)
    patience = Patience(init_timeout=15)
    assert [patience.frozen(look(time, 0)) for time in (0, 15)] == [False, True] and patience.stands_still(15)
    patience = Patience(10, 50)
    alone = [replace(look(time), distributed=False) for time in (0, 1000)]
    assert not any(patience.frozen(each) for each in alone), "a command that is no distributed job"


def test_a_start_may_take_longer_while_a_rank_computes_here_or_elsewhere() -> None:
    here, elsewhere = Patience(10, 20), Patience(10, 20)
    assert not any(here.frozen(replace(look(time, 0, 0), cpu={7: float(time)})) for time in range(79))
    assert not any(elsewhere.frozen(replace(look(time, 0, 0), elsewhere=time // 5)) for time in range(79))
    assert elsewhere.frozen(replace(look(139, 0, 0), elsewhere=15)), "none since"


def test_lines_of_a_launcher_whose_ranks_have_not_started_are_no_progress() -> None:
    patience = Patience(10, 20)
    looks = [look(time, launcher=time) for time in (1, 2)]
    assert not any(patience.frozen(each) for each in looks)
    assert not patience.is_beyond(looks[1], mark_of(looks[0])) and mark_of(looks[1]).is_beyond(
        mark_of(looks[0])
    )


def test_a_job_that_was_reported_during_its_start_goes_on_with_its_first_calls() -> None:
    start, running, ended = look(1, 0, 0, printed=9, by_calls=False), look(2, 5, 5), look(3, launcher=99)
    assert mark_of(running).is_beyond(mark_of(start))
    assert not mark_of(ended).is_beyond(mark_of(running)), "ranks that end are no progress"


def test_late_retries_of_a_launcher_that_has_started_nothing_are_no_progress() -> None:
    patience = Patience(10, 60)
    looks = [replace(look(time, launcher=time), launching=True) for time in range(61)]
    assert [patience.frozen(each) for each in looks] == [False] * 60 + [True]
    assert not patience.started


def test_the_list_of_the_evidence_does_not_list_itself(tmp_path: Path) -> None:
    for _ in range(2):
        write_evidence(tmp_path, [tmp_path], 2)
    assert json.loads((tmp_path / "evidence.json").read_text())["files"] == {}


def test_ranks_that_are_started_again_have_the_time_of_a_start() -> None:
    patience = Patience(10, 50)
    assert not any(patience.frozen(look(time, time, 0)) for time in range(100))
    assert [patience.frozen(look(time, 0, 0)) for time in (100, 149, 150)] == [False, False, True]
    assert patience.starting_for(150) == 50 and not patience.started


def test_ranks_without_an_agent_are_watched_by_what_they_write() -> None:
    patience = Patience(10)
    looks = [Look(time, [], 0, silent={7: 100 + min(time, 5)}) for time in (0, 4, 5, 14, 15)]
    assert [patience.frozen(each) for each in looks] == [False] * 4 + [True], "within the first half minute"


def test_a_rank_that_computes_is_busy_and_one_that_spins_in_a_wait_is_not() -> None:
    def two(time: float, moves: int) -> Look:
        status = [Status(100 + r, r, 3, True, 1, 0, moves if r == 1 else 0, "") for r in range(3)]
        return Look(time, status, 0, {100: time, 101: time, 102: 0.0})

    assert busy(two(0, 0), two(2, 5)) == {101}


def test_a_stall_that_resolves_itself_leaves_a_record(tmp_path: Path) -> None:
    def at(time: float, changes: int, *places: str) -> Look:
        ranks = [
            Status(100 + r, r, len(places), True, changes, 0, 0, "", place) for r, place in enumerate(places)
        ]
        return Look(time, ranks, 0)

    stalls, patience = Stalls(RunFolder(tmp_path)), Patience()
    work = ("train.py:9 in step", "data.py:4 in load", "train.py:9 in step")
    for time, changes in ((0, 1), (4, 1), (5, 2), (20, 2), (54, 2), (55, 3), (56, 4)):
        each = at(time, changes, *(work if time < 55 else ("train.py:1 in next",) * 3))
        patience.frozen(each)
        stalls.look(each, patience.still_for(time), report=False)
    stalls.look(at(100, 4, *work), 44, report=False)
    stalls.look(at(101, 2, *work[:2]), 0, report=False)  # a rank has ended
    (line,) = (tmp_path / "stalls.txt").read_text().splitlines()
    line_end = "no progress for 49 s, then progress again: rank 1 at data.py:4 in load; ranks 0 and 2 at train.py:9 in step"
    assert line.endswith(line_end)


def test_captures_of_a_stall_that_resolves_itself_are_kept_and_are_no_evidence_of_another(
    tmp_path: Path,
) -> None:
    folder = RunFolder(tmp_path / "left").make()
    stalls = Stalls(folder)
    for number in range(7):
        folder.capture(1).mkdir()
        (folder.capture(1) / "stack_rank_0.txt").write_text(f"stall {number}\n")
        stalls.ended_by_look(look(0, 1), [folder.capture(1)])
    assert sorted(path.name for path in (folder.path / "stalls").iterdir()) == ["3", "4", "5", "6", "7"]
    (folder.path / "launcher" / "host.out").write_text("step 1\n")
    with find_files([folder.path], []) as files, find_files([folder.path / "stalls" / "7"], []) as last:
        assert [file.shown for file in files] == ["launcher/host.out", "stalls.txt"]
        assert [Path(file.path).read_text() for file in last] == ["stall 6\n"]
    assert (folder.path / "stalls.txt").read_text().endswith("no stacks (captured in stalls/7)\n")


@pytest.mark.parametrize(
    ("status", "rank", "moved", "is_ended"),
    [
        ("hang", None, None, True),
        ("no_hang", None, None, False),
        ("hang", 0, True, False),
        ("hang", 0, False, True),  # it waits for rank 1, and spins
        ("hang", 1, False, False),
        ("hang", 5, True, False),  # of another node
        ("hang", 6, None, False),  # never seen here
        ("hang", 7, None, False),  # its node does not answer
        ("hang", 8, None, False),  # a launcher that has started none
    ],
)
def test_a_job_is_ended_only_if_its_report_says_hang_and_no_rank_computes(
    tmp_path: Path, status: str, rank: int | None, moved: bool | None, is_ended: bool
) -> None:
    ours, theirs = Link.pair()
    folder = RunFolder(tmp_path / "left").make()
    watcher = Watcher(theirs, Options(on_hang="kill", quiet=True), folder, os.getpid())
    watcher.reporting.status, watcher.reporting.culprits = status, frozenset({1})
    watcher.job.processes = [Process(7 + r, r, None, 2, ("python",)) for r in range(2)]
    watcher.reporting.saw(watcher.job.processes)
    watcher.captures.work = {} if moved is None else {7 + (rank or 0): Work(0.9, moved)}
    if rank == 8:
        watcher.reporting.here, watcher.reporting.culprits = set(), frozenset()
    if rank == 6:
        watcher.reporting.world_size = 7
    if rank == 7:
        (folder.path / "nodes" / "other.9.here").touch()
    if rank == 5:
        there = Activity(2.0, {12: 2.0}, {12: 7})
        folder.capture(1).mkdir()
        leave_activity(
            folder.capture(1),
            [Process(12, 5, None, 6, ("python",))],
            Activity(0.0, {12: 0.0}, {12: 1}),
            there,
        )
    ours.send(ended=1)
    watcher.ending.of_hung_job()
    assert ours.receive() == ({"send": signal.SIGTERM} if is_ended else {})


def test_that_ranks_end_by_a_signal_is_no_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The signal has reached all of the job; some ranks are gone before the watcher is asked whether the job was stalled."""
    _, theirs = Link.pair()
    watcher = Watcher(theirs, Options(quiet=True), RunFolder(tmp_path / "left").make(), os.getpid())
    looks = iter([look(0, 4, 4), look(1, 5, 5), look(20, 5, 5), look(20.5, 5)])
    monkeypatch.setattr(watcher.job, "look", lambda: next(looks))
    for _ in range(3):
        watcher._watch()
    monkeypatch.setattr(watching, "_received", {signal.SIGTERM})
    watcher._watch()
    assert watcher.patience.stands_still(21)


def test_of_a_job_that_has_shown_nothing_yet_it_is_not_said_that_it_made_progress() -> None:
    """As under srun, whose ranks are no processes below it: only what it prints is seen, and for half a minute not as progress."""
    patience = Patience()
    for time, printed in ((0, 0), (8, 40), (9, 60)):
        assert not patience.frozen(look(time, launcher=printed))
    assert patience.standstill(10) is False
    assert patience.standstill(18) is None
    assert patience.standstill(START + 1) is True
