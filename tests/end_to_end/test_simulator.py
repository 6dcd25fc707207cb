"""The simulator itself, without the analyzer: NCCL's rules, faults that show, the recorder's shape."""

from __future__ import annotations

import dataclasses
import itertools
import json
import pickle
import random
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.simulator import FAULTS, Remains, simulate, write_incident
from tests.simulator.calls import Batch, Call, Group, Join, Program, Step, Sync, Where
from tests.simulator.engine import Devices, Engine, Outcome
from tests.simulator.layouts import KINDS, make_layout

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
from answers import lower_bound

pytestmark = pytest.mark.slow

HERE = Where(0, 0, "forward")
PAIR = Group(0, "0", "default_pg", (0, 1))
TRIO = Group(0, "0", "default_pg", (0, 1, 2))
OTHER = Group(1, "1", "mesh_tp", (0, 1, 2))


def collective(
    op: str, group: Group, size: int = 8, *, asynchronous: bool = False, dtype: str = "Float"
) -> Call:
    return Call(op, group, ((size,),), ((size,),), dtype, HERE, asynchronous=asynchronous)


def p2p(op: str, src: int, dst: int, size: int = 1 << 20) -> Call:
    return Call(op, PAIR, ((size,),), ((size,),), "Float", HERE, src=src, dst=dst)


def run(*programs: Program, ahead: int = 100, devices: Devices | None = None) -> Outcome:
    return Engine(list(programs), random.Random(0), ahead=ahead, jitter=0.0, devices=devices).run()


def completed(outcome: Outcome, rank: int) -> list[bool]:
    return [made.completed is not None for made in outcome.ranks[rank].made]


def test_an_all_reduce_completes_nowhere_while_a_member_is_absent() -> None:
    outcome = run([collective("all_reduce", TRIO)], [collective("all_reduce", TRIO)], [])
    assert outcome.frozen
    assert completed(outcome, 0) == completed(outcome, 1) == [False]


def test_a_broadcast_completes_while_a_member_is_absent() -> None:
    outcome = run([collective("broadcast", TRIO)], [collective("broadcast", TRIO)], [])
    assert completed(outcome, 0) == completed(outcome, 1) == [True]


@pytest.mark.parametrize(
    "other",
    [
        collective("all_reduce", PAIR, 9),
        collective("all_reduce", PAIR, dtype="Half"),
        collective("reduce", PAIR),
    ],
)
def test_calls_that_do_not_match_complete_nowhere(other: Call) -> None:
    outcome = run([collective("all_reduce", PAIR)], [other])
    assert completed(outcome, 0) == completed(outcome, 1) == [False]


def test_an_equal_extra_call_completes_and_shifts_what_follows() -> None:
    odd: Program = [
        collective("all_reduce", PAIR),
        collective("all_reduce", PAIR),
        collective("all_gather", PAIR),
    ]
    outcome = run(odd, [collective("all_reduce", PAIR), collective("all_gather", PAIR)])
    assert completed(outcome, 0) == [True, False, False]
    assert completed(outcome, 1) == [True, False]


def test_hosts_run_ahead_to_their_limit_or_to_a_sync() -> None:
    calls: Program = [collective("all_reduce", PAIR) for _ in range(9)]
    assert len(run(calls, [], ahead=4).ranks[0].made) == 4
    synced: Program = [calls[0], Sync(HERE), *calls[1:]]
    assert len(run(synced, []).ranks[0].made) == 1


@pytest.mark.parametrize(("asynchronous", "frozen"), [(False, True), (True, False)])
def test_opposite_orders_freeze_only_calls_that_are_waited_for(asynchronous: bool, frozen: bool) -> None:
    one: Program = [collective("all_reduce", g, asynchronous=asynchronous) for g in (TRIO, OTHER)]
    assert run(one, one[::-1], one).frozen is frozen


def test_only_a_small_send_completes_without_its_recv() -> None:
    outcome = run([p2p("send", 0, 1, 16)], [])
    assert completed(outcome, 0) == [True]
    assert completed(run([p2p("send", 0, 1)], []), 0) == [False]
    assert not run([p2p("send", 0, 1)], [p2p("recv", 0, 1)]).frozen


def test_a_batch_completes_with_all_its_parts_and_its_parts_stay_scheduled() -> None:
    exchange: list[Step] = [
        Batch([p2p("send", 0, 1), p2p("recv", 1, 0)], HERE),
        Batch([p2p("recv", 0, 1), p2p("send", 1, 0)], HERE),
    ]
    outcome = run(exchange[:1], exchange[1:])
    assert not outcome.frozen
    assert completed(outcome, 0) == completed(outcome, 1) == [False, False, True]
    assert {made.p2p_seq for made in outcome.ranks[0].made} == {1}
    lacking = Batch([p2p("recv", 0, 1)], HERE)
    assert completed(run(exchange[:1], [lacking]), 0) == [False, False, False]


def test_a_dead_device_lags_behind_its_peers_completions() -> None:
    calls: Program = [collective("all_reduce", PAIR) for _ in range(3)]
    outcome = run(calls, calls, devices=Devices(dead={1: 1}))
    assert completed(outcome, 0) == [True, True, False]
    assert completed(outcome, 1) == [True, False, False]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [8, 32])
def test_healthy_jobs_of_every_layout_end(kind: str, size: int) -> None:
    incident = simulate("healthy", 1, world_size=size, layout=kind)
    assert not incident.outcome.frozen
    last = {tuple(sorted(state.collectives.items())) for state in incident.outcome.ranks if state.rank == 0}
    assert len(last) == 1


def test_512_ranks() -> None:
    incident = simulate("stuck_rank", 0, world_size=512, layout="ddp")
    (culprit,) = incident.job.truth.culprits
    idle = [state.rank for state in incident.outcome.ranks if not state.unfinished]
    assert idle == [culprit]


def test_megatron_lays_tensor_ranks_side_by_side_and_local_ids_differ() -> None:
    layout = make_layout("megatron", 32, random.Random(3))
    tensor = layout.group("tp", 0).ranks
    assert tensor == tuple(range(len(tensor)))
    assert len({g.name for g in layout.groups}) == len(layout.groups)
    shared = layout.group("dp", 1)
    ids = {layout.local_ids(rank)[layout.group("mp", rank).gid] for rank in shared.ranks}
    assert ids
    assert layout.local_ids(0).keys() != layout.local_ids(31).keys()


def test_sub_groups_of_one_split_share_a_name() -> None:
    layouts = [make_layout("hsdp", 16, random.Random(seed)) for seed in range(20)]
    assert any(len({g.name for g in layout.groups}) < len(layout.groups) for layout in layouts)


def load(path: Path) -> dict[str, Any]:
    dump: dict[str, Any] = (
        json.loads(path.read_text()) if path.suffix == ".json" else pickle.loads(path.read_bytes())
    )
    return dump


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_written_with_its_truth(fault: str, tmp_path: Path) -> None:
    for seed in (list(FAULTS).index(fault) % 2,):
        folder = tmp_path / str(seed)
        truth = write_incident(folder, fault, seed)
        written = json.loads((folder / "truth.json").read_text())
        assert written["kind"] == fault
        assert written["culprits"] == sorted(truth.culprits)
        assert truth.accept or truth.status in ("no_hang", "inconclusive")
        logs = sorted((folder / "dumps" / "logs").iterdir())
        assert logs
        for path in sorted((folder / "dumps").glob("recorder/*")):
            check_dump(load(path))


def check_dump(dump: dict[str, Any]) -> None:
    entries = dump.get("entries", [])
    numbers = [entry["record_id"] for entry in entries]
    assert numbers == sorted(set(numbers))
    for entry in entries:
        assert str(entry["pg_id"]) in dump["pg_status"]
        name, _ = entry["process_group"]
        assert name in dump["pg_config"]
        assert entry["state"] in ("scheduled", "started", "completed")
        assert entry["retired"] == (entry["state"] == "completed")
    for local_id, status in dump["pg_status"].items():
        mine = [e for e in entries if str(e["pg_id"]) == local_id]
        if mine and "frames" in mine[-1]:  # a dump of pending calls may end with a batch's part of long ago
            seq = mine[-1]["p2p_seq_id" if mine[-1]["is_p2p"] else "collective_seq_id"]
            assert int(status["last_enqueued_collective"]) == seq


def test_an_all_to_all_completes_on_those_who_exchange_nothing_with_the_absent_one() -> None:
    apart = Call("all_to_all", TRIO, ((8,),), ((8,),), "Float", HERE, peers=(0, 1))
    outcome = run([apart], [dataclasses.replace(apart, peers=None)], [])
    assert (completed(outcome, 0), completed(outcome, 1)) == ([True], [False])


def test_a_detached_call_holds_up_nothing_until_it_is_joined() -> None:
    save = Call("all_gather", OTHER, ((8,),), ((8,),), "Float", HERE, detached=True)
    step = collective("all_reduce", TRIO)
    outcome = run([save, step, Join(HERE), step], [save, step, step], [step, step])
    assert completed(outcome, 0) == [False, True]
    assert completed(outcome, 1) == [False, True, False]
    assert [made.call for made in outcome.ranks[0].pending] == [save]


def test_several_roots_stop_in_different_ways() -> None:
    for seed in range(4):
        left = Remains(simulate("several_roots", seed))
        truth = left.job.truth
        assert len(set(truth.accept)) == len(truth.culprits) >= 2
        assert len(left.job.devices.dead) == truth.accept.count("gpu_stall")


def test_a_slow_card_lets_a_call_complete_between_the_dumps() -> None:
    apart = 0
    for seed in range(6):
        left = Remains(simulate("slow_network_card", seed))
        ((gid, seq),) = left.job.devices.late
        late = [
            m for s in left.outcome.ranks for m in s.made if (m.gid, m.seq, m.is_p2p) == (gid, seq, False)
        ]
        assert all(m.completed is not None and m.completed - m.created > left.job.timeout for m in late)
        apart += len({m.completed <= left.full.taken[m.rank] for m in late if m.completed is not None}) == 2
        texts = [left.logs(left.full.clocks).text(rank) for rank in left.full.logs]
        assert any("Watchdog caught" in text for text in texts)
        assert all("preparing to dump debug info" in text for text in texts)
    assert apart >= 3


def test_aborted_calls_are_completed_on_some_survivors_only() -> None:
    uneven = 0
    for seed in range(4):
        outcome = simulate("aborted_unevenly", seed).outcome
        waiting = [state for state in outcome.ranks if state.unfinished]
        aborted = [state for state in waiting if state.unfinished[0].completed is not None]
        assert aborted
        uneven += len(aborted) < len(waiting)
    assert uneven


def test_dumps_of_a_job_that_moves_are_made_at_different_moments(tmp_path: Path) -> None:
    for seed in range(3):
        left = Remains(simulate("still_moving", seed))
        assert not left.outcome.frozen
        assert len(set(left.full.taken.values())) > 1
        assert all(left.full.taken[rank] < left.outcome.last + 12 for rank in left.full.dumps)
        texts = [left.logs(left.full.clocks).text(rank) for rank in left.full.logs]
        assert not any("Watchdog" in text for text in texts)


def test_an_earlier_attempt_leaves_its_logs_and_the_dumps_that_are_not_overwritten(tmp_path: Path) -> None:
    stale = 0
    for seed in range(6):
        left = Remains(simulate("two_attempts", seed))
        assert left.earlier is not None
        assert left.earlier.job.layout == left.job.layout
        stale += len(left.full.stale)
        assert not left.full.stale & left.full.dumps
        (tmp_path / str(seed)).mkdir()
        left.write(tmp_path / str(seed), left.full)
        files = sorted((tmp_path / str(seed) / "recorder").iterdir())
        assert len(files) == len(left.full.dumps | left.full.stale)
    assert stale


def test_a_rebuilt_group_keeps_its_name_and_counts_from_one(tmp_path: Path) -> None:
    write_incident(tmp_path, "rebuilt_group", 0, world_size=8, layout="ddp")
    dump = load(sorted((tmp_path / "dumps" / "recorder").iterdir())[0])
    assert len(dump["pg_config"]) == 1
    assert len({entry["pg_id"] for entry in dump["entries"]}) == 2
    seqs = [entry["collective_seq_id"] for entry in dump["entries"]]
    assert any(later < before for before, later in itertools.pairwise(seqs))


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_incident(tmp_path / name, "extra_call", 7)
    files = sorted(
        path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*") if path.is_file()
    )
    assert len(files) > 16
    for path in files:
        assert (tmp_path / "one" / path).read_bytes() == (tmp_path / "two" / path).read_bytes()


def test_rings_wrap(tmp_path: Path) -> None:
    wrapped = 0
    for seed in range(6):
        write_incident(tmp_path / str(seed), "stuck_rank", seed)
        for path in (tmp_path / str(seed) / "dumps" / "recorder").iterdir():
            entries = load(path).get("entries", [])
            wrapped += bool(entries) and entries[0]["record_id"] > 0
    assert wrapped > 10


def test_waiting_ranks_time_out_and_the_stuck_one_observes_it(tmp_path: Path) -> None:
    truth = write_incident(tmp_path / "i", "stuck_rank", 0, world_size=8, layout="ddp")
    texts = {
        int(path.stem.split("_")[1]): path.read_text()
        for path in (tmp_path / "i" / "dumps" / "logs").iterdir()
    }
    (culprit,) = truth.culprits
    for rank, text in texts.items():
        assert ("Watchdog caught collective operation timeout: WorkNCCL(SeqNum=" in text) is (rank != culprit)
    assert "Observed flight recorder dump signal" in texts[culprit]


def test_a_dead_rank_leaves_no_dump(tmp_path: Path) -> None:
    for seed in range(4):
        truth = write_incident(tmp_path / str(seed), "crashed_exception", seed)
        (culprit,) = truth.culprits
        dumps = tmp_path / str(seed) / "dumps"
        assert not [path for path in dumps.glob("recorder/*") if path.stem.endswith(f"_{culprit}")]
        assert f"[rank{culprit}]: Traceback" in (dumps / "logs" / f"rank_{culprit}.log").read_text()


def test_the_lower_bound_of_59_right_of_59_is_95_percent() -> None:
    assert lower_bound(59, 59) == pytest.approx(0.9505, abs=1e-4)
    assert lower_bound(0, 10) == 0.0
    assert 0.9 < lower_bound(1270, 1300) < 1270 / 1300
