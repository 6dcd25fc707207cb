"""Ranks in words: before a program's own lines, in titles, and anywhere in a text."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from hangscope.ingest.job_logs.last_lines import Printed, last_lines
from hangscope.ingest.job_logs.progress import Progress
from hangscope.ingest.lines.kept_text import KeptText
from hangscope.ingest.lines.prefixes import strip_prefix
from hangscope.ingest.lines.rank_words import (
    Named,
    by_itself,
    column_of,
    likewise,
    named_processes,
    ranks_titled,
)
from hangscope.ingest.stacks.dumps import read_processes
from hangscope.ingest.stacks.threads import ranks_of_commands
from tests.text_lines import judged, short, timeout, told


@pytest.mark.parametrize(
    "head", ["[rank 3] ", "[Rank 3/16] ", "rank3 ", "rank 3: ", "RANK=3 ", "(rank 3 of 16) ", "[proc 3] ", "[r3] ", "<rank:3> ", "[rang 3] ", "2026-05-07 11:20:12 [rank 3] ", "11:20:12 rank 3 ", "[  12.4s] rank 3: ", "1778152812.25 rank 3 ", "[11:20:12.250] [rank 3] "],
)  # fmt: skip
def test_a_line_tells_whose_it_is(head: str) -> None:
    line = by_itself(strip_prefix(f"{head}step 5 loss 1.25"))
    assert (line.rank, line.text) == (3, "step 5 loss 1.25")


@pytest.mark.parametrize(
    "text",
    ["ranking 3 items", "run3 step 5", "rank3.log written", "r3 step 5", "process 3 step 5", "step 5 of rank 3", "[3] step 5", "rank step 5", "5 rank 3 step 5", "1.25x rank 3 step 5"],
)  # fmt: skip
def test_other_words_tell_of_no_rank(text: str) -> None:
    line = strip_prefix(text)
    assert by_itself(line) == line


def test_what_begins_the_lines_of_a_log_and_counts_its_writers_is_the_rank() -> None:
    writers = [2, 0, 1, 0, 2, 1, 1, 2, 0]
    column = column_of([f"W{writer} step {n} loss 1.{n}" for n, writer in enumerate(writers)])
    assert column is not None
    line = by_itself(strip_prefix("W2 step 5 loss 1.25"), column)
    assert (line.rank, line.text) == (2, "step 5 loss 1.25")


def test_a_rank_of_a_stated_size_may_be_in_order() -> None:
    texts = [f"INFO [trainer.py:668] ({rank}/3) Epoch 1, batch {n}" for n in (100, 200) for rank in range(3)]
    column = column_of(texts)
    assert column is not None and by_itself(strip_prefix(texts[1]), column).rank == 1


@pytest.mark.parametrize(
    ("word", "numbers"),
    [("W", [0, 1, 2, 3, 4, 5]), ("W", [0, 1, 2, 0, 1, 2, 0, 1, 2]), ("W", [1, 2, 1, 2, 2, 1]), ("epoch", [0, 1, 1, 0, 1, 0, 0])],
)  # fmt: skip
def test_a_counter_is_no_rank(word: str, numbers: list[int]) -> None:
    assert column_of([f"{word}{number} loss 1.25" for number in numbers]) is None


def test_a_rank_that_another_prefix_tells_stays() -> None:
    assert by_itself(strip_prefix("[rank2]: rank 0 step 5")).rank == 2


def test_of_each_rank_of_one_log_the_last_step_is_kept() -> None:
    data = b"".join(b"rank%d step %d\n" % (rank, step) for step in range(3) for rank in range(4))
    events = [e for e in last_lines(KeptText([(1, data)])) if isinstance(e, Progress)]
    assert [(e.rank, e.step) for e in events] == [(rank, 2) for rank in range(4)]


def test_of_each_rank_of_one_log_the_last_lines_are_kept() -> None:
    data = b"".join(b"[rank %d] read shard %d\n" % (rank, step) for step in range(3) for rank in range(2))
    kept = KeptText([(1, data + b"srun: waiting\nsrun: waiting\n")])
    told = [event for event in last_lines(kept) if isinstance(event, Printed)]
    assert {t.rank: (t.templates, t.counts) for t in told} == dict.fromkeys(
        range(2), (("read shard #",), (3,))
    )


def test_who_printed_a_line_of_its_own_while_the_others_timed_out(tmp_path: Path) -> None:
    lines = [f"[rank {rank}] read shard {n}" for n in range(4) for rank in range(4)]
    lines += [f"[rank {rank}] read shard 4" for rank in (0, 1, 3)] + ["[rank 2] waiting for a lock"]
    verdict = judged(told(tmp_path, [*lines, *(timeout(rank) for rank in (0, 1, 3))]))
    assert verdict.culprit_ranks == (2,) and verdict.confidence != "high"


@pytest.mark.parametrize(
    ("few", "many", "cause"),
    [
        (1, 6_553_600, "rank_conditional_collective"),
        (36_864, 98_304, "shape_mismatch"),
        (1, 12, "shape_mismatch"),
    ],
)
def test_a_few_numbers_are_not_the_tensor_of_the_others(
    tmp_path: Path, few: int, many: int, cause: str
) -> None:
    lines = [timeout(rank, n=few if rank == 1 else many) for rank in range(4)]
    assert short(told(tmp_path, lines))[:2] == (cause, (1,))


@pytest.mark.parametrize(
    ("line", "ranks"),
    [
        ("### gdb -p of rank 3", (3,)),
        ("ranks 1-3 all show", (1, 2, 3)),
        ("Ranks 0, 2 and 5:", (0, 2, 5)),
        ("rank 0 ^^^, ranks 1..3 like this:", (1, 2, 3)),
        ("== /var/dumps/rank7.txt", (7,)),
        ("==> out/stack_rank_2.txt <==", (2,)),
        ("$ cat rank4.stack", (4,)),
        ("I looked at the one that prints nothing (rank 6) a bit earlier:", (6,)),
        ("this is what py-spy says on rank 5:", (5,)),
        ("--- node1, rank 5", (5,)),
        ("=== gpu07 / rank 5 ===", (5,)),
        ('Thread (rank 5) "MainThread"', (5,)),
        ("Process 41120 (rank 5)", (5,)),
        ("pid 3302 (rank 2), pid 3303 (rank 3)", (2, 3)),
        ("rank 0, cn-234", (0,)),
        ("found now in the log of rank 2, cn-237:", (2,)),
    ],
)
def test_a_line_above_a_stack_names_its_ranks(line: str, ranks: tuple[int, ...]) -> None:
    assert ranks_titled(line) == ranks


def test_hosts_in_parentheses_may_be_between_the_ranks_of_a_title() -> None:
    title = "ranks 0,1,2 (node A), 4,5 (node B):"
    assert ranks_titled(title, above_a_stack=True) == (0, 1, 2, 4, 5)


@pytest.mark.parametrize(
    "line",
    [
        "all ranks wait for rank 0",
        "the same on all others except rank 3:",
        "everything but one (rank 3) shows:",
        "all are waiting for rank 3:",
        "rank 0 (and rank 4) after rank 2 left (rank 1):",
        "nothing more from rank 3",
        "rank 3, step-100",
        "waiting for rank 3, node-7:",
        "--- rank 3 waits for rank 5",
        "------ step 7 of rank 3 took 12 s",
        "ranks 0-9999999:",
        "rank: " + "x" * 200,
    ],
)
def test_a_sentence_about_a_rank_is_no_title(line: str) -> None:
    assert ranks_titled(line) == ()


@pytest.mark.parametrize(
    ("titles", "ranks"),
    [
        (["python fit.py  # RANK=0", "python fit.py  # RANK=1"], [0, 1]),
        (["python fit.py --rank 1 --world 2", "python fit.py --rank 0 --world 2"], [1, 0]),
        (["python fit.py [rank 3]"], [3]),
        (["trainer rank 2"], [2]),
    ],
)
def test_a_command_line_tells_the_rank(titles: list[str], ranks: list[int]) -> None:
    assert ranks_of_commands(dict(enumerate(titles))) == dict(enumerate(ranks))


@pytest.mark.parametrize(
    "titles",
    [
        ["python fit.py --rank 8", "python fit.py --rank 8"],  # of a matrix
        ["python fit.py --rank 8"],
        ["python fit.py --lora-rank 8", "python fit.py --node_rank=1", "python fit.py --local_rank=1"],
    ],
)
def test_other_ranks_of_a_command_line_are_none(titles: list[str]) -> None:
    assert ranks_of_commands(dict(enumerate(titles))) == {}


def _spy(pid: int, command: str = "python fit.py") -> str:
    return f'Process {pid}: {command}\nPython v3.12.3\n\nThread {pid} (idle): "MainThread"\n    step (fit.py:9)\n'


def _ranks(*parts: str) -> list[int | None]:
    found = read_processes(io.BytesIO("\n".join(parts).encode()), "stacks.txt")
    return [process.rank for process in found]


def test_one_stack_may_be_of_several_ranks() -> None:
    assert _ranks("rank 0:", _spy(1), "ranks 1-3 all look like", _spy(2)) == [0, 1, 2, 3]


def test_a_logger_puts_its_prefix_before_the_first_line_alone(tmp_path: Path) -> None:
    c10d = '  File "/usr/lib/python3/dist-packages/torch/distributed/distributed_c10d.py", line 2501 in all_reduce'
    lines = []
    for rank in range(4):
        lines += [
            f"[2026-03-30 02:00:1{rank} TP{rank}] Current thread 0x00007f4fe54b{rank}480 (most recent call first):",
            '  File "/eng/storage.py", line 18 in get' if rank == 3 else c10d,
            '  File "/eng/cache.py", line 41 in check',
        ]
    assert short(told(tmp_path, {"server.log": lines})) == ("stuck_rank", (3,), "medium")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("20:15:02 [rank5] pid 78808 writing __5_0.distcp", Named(1, (5,), (), (78808,))),
        ("(PID:52806, Device:6, RankID:6) ERR02200", Named(1, (6,), (), (52806,))),
        ("[rank: 3] Child process with PID 61243 terminated", Named(1, (), (3,), (61243,))),
        ("---------Begin global rank 1 STDERR---------", Named(1, (1,), (), (), titled=True)),
        ("Received (local rank 2) pid=812", Named(1, (), (2,), (812,))),
    ],
)
def test_a_line_names_processes(text: str, expected: Named) -> None:
    assert named_processes([(1, text)]) == (expected,)


@pytest.mark.parametrize("text", ["rankings of 3 teams", "tp rank 1 is done", "node_rank=1", "stupid=44"])
def test_other_numbers_are_no_process(text: str) -> None:
    assert named_processes([(1, text)]) == ()


def test_a_clock_and_lines_of_a_traceback_hide_no_column() -> None:
    printed = [
        f"[10:16:5{n}.273][worker {writer}][I] round {n}"
        for n, writer in enumerate([2, 0, 1, 0, 2, 1, 1, 2, 0])
    ]
    trace = ["Traceback (most recent call last):", *['  File "eval.py", line 7, in <module>'] * 9]
    column = column_of([*printed, *trace])
    assert column is not None
    line = by_itself(strip_prefix(printed[0]), column)
    assert (line.rank, line.text) == (2, "[I] round 0")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(ranks 1 3 5 6 have the same lines as 2)", ((1, 3, 5, 6), 2)),
        ("=== rank 1, rank 2: the same 6 frames (LWP 4822091)", ((1, 2), None)),
        ("(TP1: same as 2 and 3)", ((1,), 2)),
        ("--- ranks 5 – 7: same as rank 4", ((5, 6, 7), 4)),
        ("rank 3 is in the same collective as rank 2", None),
        ("it is the same for rank 3", None),
        ("step 3 took the same time", None),
        ("rank " + "1" * 100 + " same", None),
    ],
)
def test_ranks_of_which_somebody_says_that_they_show_the_same(
    text: str, expected: tuple[tuple[int, ...], int | None] | None
) -> None:
    assert likewise(text) == expected


def test_what_a_reporter_says_of_other_ranks_counts_as_theirs(tmp_path: Path) -> None:
    lines = ["8 GPUs, DDP", timeout(2), timeout(4), "(ranks 1 3 5 6 have the same lines as 2)"]
    assert "Ranks 1-6 timed out" in judged(told(tmp_path, lines)).explanation


def test_a_list_of_the_processes_of_ranks_names_each(tmp_path: Path) -> None:
    named = named_processes([(3, "rank map: rank0=20710 rank1=20711 rank2=20712")])
    assert [(one.ranks, one.pids) for one in named] == [((0,), (20710,)), ((1,), (20711,)), ((2,), (20712,))]
    killed = "Ray killed this worker (ID: 2c1f77, pid: 20711) because it was the most recently scheduled task"
    verdict = judged(told(tmp_path, ["rank map: rank0=20710 rank1=20711", timeout(0), killed]))
    assert (verdict.cause, verdict.culprit_ranks) == ("crashed_rank", (1,))


def test_a_line_of_a_rank_above_a_stack_says_whose_that_is(tmp_path: Path) -> None:
    lines = []
    for rank, frame in (
        (2, "broadcast_pyobj (sglang/srt/utils.py:912)"),
        (0, "compile_json_schema (xgrammar/compiler.py:231)"),
    ):
        lines += [f"[2026-10-30 16:07:14 TP{rank}] Pyspy dump for PID {1200 + rank}:"]
        lines += [
            f'Thread {1200 + rank} (active): "MainThread"',
            f"    {frame}",
            "    event_loop (scheduler.py:9)",
        ]
    path = tmp_path / "stacks.txt"
    path.write_text("\n".join([*lines, "(TP1: same as 2)"]))
    with path.open("rb") as stream:
        found = {
            process.rank: process.threads[0][1][0].name for process in read_processes(stream, "stacks.txt")
        }
    assert found == {2: "broadcast_pyobj", 0: "compile_json_schema", 1: "broadcast_pyobj"}


@pytest.mark.parametrize(
    ("title", "ranks"),
    [
        ("15:02 rank 6", [6]),
        ("py-spy on the rank that is late, rank 6", [6]),
        ("rank 0 (pid 1), same in rank 2 (3) and rank 3 (4):", [0, 2, 3]),
        ("15:02 rank 6 and rank 7", []),
        ("15:02 nobody can tell why the others are waiting for rank 6", []),
        ("15:02 rank 6 is late", []),
    ],
)
def test_a_short_line_right_above_frames_that_ends_with_a_rank_is_a_title(
    title: str, ranks: list[int]
) -> None:
    assert _ranks(title, "    step (fit.py:9)", "    main (fit.py:20)\n") == ranks


@pytest.mark.parametrize(
    ("line", "rank"), [("15:02 rank 6", 6), ("[rank 0] entering forward step 0 micro 0", None)]
)
def test_a_line_that_a_rank_printed_above_a_command_is_no_title_of_what_that_prints(
    line: str, rank: int | None
) -> None:
    assert _ranks(line, "$ py-spy dump --pid 4", _spy(4)) == [rank]


def test_a_bare_column_of_a_loggers_lines_counts_its_writers() -> None:
    order = [7, 2, 5, 6, 4, 0, 1, 3, 2, 5, 0, 3, 7, 1, 4]
    lines = [f"{rank} - trainer.ckpt - shard written" for rank in order]  # rank 6 wrote none
    column = column_of(lines)
    assert column is not None and (found := column.match(lines[0])) is not None and found[1] == "7"
    assert column_of([f"{step} - trainer - loss 2.1" for step in range(20)]) is None


@pytest.mark.parametrize(
    "line", ["$ py-spy dump --pid 10277  # rank 0, 23:40", "^^^ last line of rank 0, 22:31:40"]
)
def test_a_time_of_day_after_a_rank_is_no_second_rank(line: str) -> None:
    assert ranks_titled(line, above_a_stack=True) == (0,)


def test_the_number_of_a_node_is_no_rank() -> None:
    assert ranks_titled("--- hg-02 (node rank 1) ---") == ()
    assert ranks_titled("--- hg-02 (rank 1) ---") == (1,)
