"""What scales with a job stays linear, is shared between ranks, and does not change the verdict.

Counts are asserted rather than times, which other work on the machine stretches; `benchmarks/scale.py` measures times.
"""

from __future__ import annotations

import json
import pickle
import pickletools
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hangscope
from hangscope.analysis import analyse
from hangscope.ingest.assemble import assemble
from hangscope.ingest.recorder import flight_recorder
from hangscope.ingest.recorder.members import Interner, Members, parse_members
from hangscope.ingest.recorder.recording import Recording
from hangscope.ingest.workers import reader
from hangscope.ingest.workers.reading import Reading
from hangscope.model.rankset import compress
from hangscope.report.view import build_document
from tests.conftest import analyze
from tests.in_thread import InThisThread

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
import growth
from dump_generator import LAYOUTS, PREFIX, Job, generate

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the dumps of 128 ranks in tensor-parallel groups of 8, of 200 calls each."""
    folder = tmp_path_factory.mktemp("mesh")
    generate(folder, Job(128, entries=200, layout="mesh"))
    return folder


def readings(folder: Path) -> list[Reading]:
    """Return the readings of a folder's dumps, with what they share kept once."""
    interner = Interner()
    return [
        Reading.from_wire(path.name, reader.read_file(str(path), path.name), interner)
        for path in sorted(folder.iterdir())
    ]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_generated_dumps_are_whole_and_their_culprit_is_found(tmp_path: Path, layout: str) -> None:
    job = Job(32, entries=120, frames=20, layout=layout, timing=True, ragged=True, own_stacks=True)
    size = generate(tmp_path, job)
    files = sorted(tmp_path.iterdir())
    assert len(files) == 32 and sum(path.stat().st_size for path in files) == size
    dump = pickle.loads(files[0].read_bytes())
    assert len(dump["entries"]) == len(job.calls(job.role(0))) - job.begins(0)
    assert dump["entries"][-1]["record_id"] == len(job.calls(job.role(0))) - 1
    assert len(dump["entries"][0]["frames"]) == 20 + job.own_stacks
    assert dump["pg_config"]["0"]["ranks"] == str(list(range(32)))
    opcodes = {opcode.name for opcode, _, _ in pickletools.genops(files[0].read_bytes())}
    assert not opcodes & {"GLOBAL", "REDUCE", "STACK_GLOBAL", "APPEND", "SETITEM"}
    verdict = analyze(tmp_path).verdict
    assert verdict is not None
    assert (verdict.cause, verdict.culprit_ranks) == ("stuck_rank", (job.culprit,))
    assert verdict.explains.ranks == 31


def test_the_verdict_is_the_same_however_the_files_are_read(mesh: Path) -> None:
    reports = [hangscope.analyze(mesh, jobs=2), analyze(mesh)]
    with ThreadPoolExecutor(3) as threads:
        reports.append(hangscope.analyze(mesh, executor=threads))
    texts = {report.to_json() for report in reports}
    assert len(texts) == 1
    assert json.loads(texts.pop())["verdict"]["culprit_ranks"] == [84]


def test_ranks_of_one_role_share_all_columns_but_their_times(mesh: Path) -> None:
    incident = assemble(readings(mesh))
    columns: dict[str, set[int]] = {name: set() for name in ("seq", "kind", "state", "order", "created")}
    for record in incident.ranks.values():
        for queue in record.queues.values():
            for name, seen in columns.items():
                seen.add(id(getattr(queue, name)))
    # Three roles (the culprit, those who wait for it, the others) with three groups each.
    assert {name: len(seen) for name, seen in columns.items() if name != "created"} == dict.fromkeys(
        ("seq", "kind", "state", "order"), 9
    )
    assert len(columns["created"]) == 3 * 128
    assert len({id(group.ranks) for group in incident.groups}) == len(incident.groups) == 1 + 16 + 8


def test_a_rank_alone_has_the_columns_it_has_among_others(mesh: Path) -> None:
    among = {reading.file: reading.recordings[0] for reading in readings(mesh)}
    for name in (f"{PREFIX}0", f"{PREFIX}84", f"{PREFIX}127"):
        alone = Recording.from_wire(reader.read_file(str(mesh / name), name)["recordings"][0])
        assert alone.columns == among[name].columns
        assert (alone.kinds, alone.stacks, alone.config) == (
            among[name].kinds,
            among[name].stacks,
            among[name].config,
        )


def python_lines(function: Any) -> tuple[Any, int]:
    """Return what a function returns, and how many lines of hangscope's own code ran for it."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if "hangscope" not in frame.f_code.co_filename:
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        return function(), count
    finally:
        sys.settrace(before)


def test_work_in_the_parent_grows_with_the_ranks_and_not_faster(tmp_path: Path) -> None:
    lines: Counter[int] = Counter()
    for ranks in (8, 32, 64, 128):  # the first one fills caches
        folder = tmp_path / str(ranks)
        generate(folder, Job(ranks, entries=60, layout="mesh"))
        read = readings(folder)
        report, lines[ranks] = python_lines(lambda read=read: build_document(analyse(assemble(read)), "test"))
        assert report.verdict is not None and report.verdict.explains.ranks == ranks - 1
    assert lines[128] - lines[64] < 2.1 * (lines[64] - lines[32])


def test_calls_cost_no_lines_in_the_parent(tmp_path: Path) -> None:
    lines = []
    for entries in (60, 600):
        folder = tmp_path / str(entries)
        generate(folder, Job(32, entries=entries, layout="mesh"))
        read = readings(folder)
        lines.append(python_lines(lambda read=read: analyse(assemble(read)))[1])
    assert lines[1] < 1.5 * lines[0]


def test_the_report_of_a_large_job_is_small(tmp_path: Path) -> None:
    job = Job(1032, entries=40, layout="mesh")  # more than those whose groups are written out
    generate(tmp_path, job)
    report = analyze(tmp_path)
    assert report.verdict is not None and report.verdict.culprit_ranks == (job.culprit,)
    assert len(report.to_html().encode()) < 200_000
    assert {row["ranks"] for row in report.to_dict()["groups"] if row["desc"] == "mesh_dp"} == {
        f"{place}-{1024 + place}:8" for place in range(8)
    }


def test_a_dump_of_a_job_crosses_over_as_columns(mesh: Path) -> None:
    path = mesh / f"{PREFIX}0"
    wire = pickle.dumps(reader.read_file(str(path), path.name), protocol=5)
    assert len(wire) < path.stat().st_size / 2.5
    assert not {op.name for op, _, _ in pickletools.genops(wire)} & {"GLOBAL", "STACK_GLOBAL", "REDUCE"}


@given(st.lists(st.integers(0, 400), max_size=40, unique=True))
def test_members_survive_their_runs_and_equal_the_plain_tuple(ranks: list[int]) -> None:
    members = Members(ranks)
    assert Members.of_runs(members.runs) == members == tuple(ranks)
    assert hash(members) == hash(tuple(ranks))
    assert parse_members(str(ranks)) == (tuple(ranks) or None)
    assert all(rank in members for rank in ranks) and -1 not in members


def test_members_of_a_dump_are_not_worked_out_for_every_rank(mesh: Path) -> None:
    """The world's members are a list as long as the job in each of its dumps."""
    recordings = [
        flight_recorder.reduce_dump(pickle.loads((mesh / f"{PREFIX}{rank}").read_bytes())) for rank in (0, 1)
    ]
    first, second = (recording.config["0"][1] for recording in recordings)
    assert first is second and isinstance(first, Members) and Members.of(first) is first


def test_regular_members_are_few_runs() -> None:
    assert Members(range(16384)).runs == ((0, 16384, 1),)
    assert Members(range(5, 16384, 8)).runs == ((5, 2048, 8),)


@given(
    st.sets(st.integers(0, 300))
    | st.builds(
        lambda a, n, s: set(range(a, a + n * s, s)), st.integers(0, 9), st.integers(0, 40), st.integers(1, 9)
    )
)
def test_compressed_ranks_name_each_rank_once(ranks: set[int]) -> None:
    told: list[int] = []
    for run in compress(ranks).split(",") if ranks else ():
        span, _, step = run.partition(":")
        first, _, last = span.partition("-")
        told += range(int(first), int(last or first) + 1, int(step or 1))
    assert told == sorted(ranks)


def entry(name: str, seq: int, **more: Any) -> dict[str, Any]:
    """Return one entry with fresh containers, as a dump without shared objects has them."""
    return {
        "profiling_name": name,
        "collective_seq_id": seq,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "state": "completed",
        "input_sizes": [[seq % 3]],
        "output_sizes": [[seq % 3]],
        "input_dtypes": ["Float"],
        "output_dtypes": ["Float"],
        "frames": [{"name": "train", "filename": "/workspace/train.py", "line": 10 + seq % 2}],
        **more,
    }


@given(
    st.lists(
        st.tuples(st.sampled_from(["nccl:all_reduce", "nccl:broadcast"]), st.integers(0, 5)), max_size=60
    )
)
def test_guessing_what_follows_changes_no_kind(calls: list[tuple[str, int]]) -> None:
    """A kind is what its entry says, whatever came before it and was expected after that."""
    recording = flight_recorder.reduce_dump({"version": "2.10", "entries": [entry(*call) for call in calls]})
    told = []
    for index in recording.columns["kind"]:
        op, _, sizes, _, _, _, _, _, stack, _ = recording.kinds[index]
        told.append((op, sizes, recording.stacks[stack][0][2]))
    assert told == [(name[5:], ((seq % 3,),), 10 + seq % 2) for name, seq in calls]
    assert len(set(recording.kinds)) == len(recording.kinds) and len(set(recording.stacks)) == len(
        recording.stacks
    )


def test_reading_in_this_thread_leaves_the_collector_as_it_was(mesh: Path) -> None:
    import gc

    assert gc.isenabled()
    future = InThisThread().submit(reader.read_file, str(mesh / f"{PREFIX}0"), "x")
    assert future.result()["status"] == "used" and gc.isenabled()


@pytest.mark.parametrize("kind", growth.KINDS)
def test_cost_follows_the_size_of_hostile_input(kind: str) -> None:
    """Four times the input costs at most eight times as much; in proportion to its square it would be sixteen."""
    make, size = growth.KINDS[kind]
    growth.cost(make, 8)  # imports and caches
    assert growth.cost(make, size) < 8 * growth.cost(make, size // 4) + 0.5
