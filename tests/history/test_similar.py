"""Which incidents are of one bug, and what a report says of them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from hangscope.history.similar import ALIKE, seen_before, similar, similarity
from hangscope.history.store import open_store
from tests.conftest import FIXTURES, Run, analyze
from tests.dump_writer import job, write_all
from tests.history.entries import entry

ONE = entry("a")


@pytest.mark.parametrize(
    "changed",
    [
        {"culprits": "12,99", "world_size": 1024, "seq": 800, "hosts": "other"},
        {"line": 27, "waiting_line": 47},  # seven lines were added above
        {"confidence": "low", "job": "x", "duration_s": 0.0},
    ],
)
def test_one_bug_is_found_again(changed: dict[str, object]) -> None:
    assert similarity(ONE, entry("b", **changed)) == 1.0


@pytest.mark.parametrize(
    "changed",
    [
        {"line": 24},  # another line of the same function
        {"line": 24, "waiting_line": 0},
        {"waiting_line": 44},
        {"function": "evaluate"},
        {"cause": "uneven_loader", "differs": "all_gather"},
        {"cause": "stuck_rank", "file": "train.py", "line": 40, "function": "step"},
        {"op": "all_gather", "waiting_function": "other"},
        {"status": "inconclusive"},
        {"function": "", "waiting_function": ""},
    ],
)
def test_another_bug_is_not(changed: dict[str, object]) -> None:
    assert similarity(ONE, entry("b", **changed)) < ALIKE


def test_unknown_causes_are_no_agreement() -> None:
    bare = {"cause": "unknown", "differs": "", "role": ""}
    assert similarity(entry("a", **bare), entry("b", **bare, waiting_function="other")) < ALIKE


def test_where_a_rank_is_absent_its_peers_line_is_no_bug() -> None:
    absent = {"cause": "stuck_rank", "line": 40, "function": "step", "differs": "all_reduce"}
    assert similarity(entry("a", **absent), entry("b", **absent)) == 0.0
    stack = {**absent, "file": "data.py", "line": 7, "function": "read"}
    assert similarity(entry("a", **stack), entry("b", **stack)) == 1.0


def test_earlier_incidents_are_told_by_time_and_note() -> None:
    found = similar(ONE, [ONE, entry("b", happened=86400.0 * 20000, note="fixed by #12", job="j1"), entry("c", happened=86400.0 * 20005, job="j2")])  # fmt: skip
    seen = seen_before(found)
    assert seen.ids == ("c", "b")
    assert (
        seen.text == "Seen 2 times before, first on 2024-10-04, last on 2024-10-09 (j2). Note: fixed by #12."
    )
    assert seen_before([]).text == ""
    assert seen_before(found[:1]).text == "Seen once before, on 2024-10-09 (j2)."


def hang(folder: Path, size: int, culprit: int, line: int = 20) -> Path:
    recorders = job(size)
    for recorder in recorders:
        recorder.call("all_reduce", times=5 + size, line=40)
        at = {"line": line, "function": "save"} if recorder.rank == culprit else {"line": 40}
        recorder.call("broadcast" if recorder.rank == culprit else "all_reduce", state="scheduled", **at)
    return write_all(recorders, folder)


def test_every_output_says_that_a_bug_was_seen_before(tmp_path: Path) -> None:
    place = str(tmp_path / "store.db")
    first = analyze(hang(tmp_path / "job-1", 4, 2), store=place)
    assert first.to_dict()["seen_before"]["times"] == 0 and "before" not in first.to_markdown()
    with open_store(place) as store:
        store.annotate(store.entries()[0].id, "fixed by guarding the write")
    again = analyze(tmp_path / "job-1", store=place)
    assert again.to_dict()["seen_before"]["times"] == 0  # the same incident
    other = analyze(hang(tmp_path / "job-2", 6, 5), store=place)
    seen = other.to_dict()["seen_before"]
    assert (seen["times"], seen["last_job"], seen["note"]) == (1, "job-1", "fixed by guarding the write")
    for text in (other.to_text(), other.to_markdown(), other.to_markdown("jira"), other.to_html()):
        flat = " ".join(text.replace("\\", "").split())
        assert "Seen once before" in flat and "guarding the write" in flat
    elsewhere = analyze(hang(tmp_path / "job-3", 4, 1, line=90), store=place)
    assert elsewhere.to_dict()["seen_before"]["times"] == 0
    hidden = analyze(tmp_path / "job-2", store=place, redact=["paths"]).to_dict()["seen_before"]
    assert (hidden["times"], hidden["last_job"], hidden["note"]) == (1, "", "")


def test_no_store_is_opened_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hang: Path) -> None:
    place = tmp_path / "store.db"
    monkeypatch.setenv("HANGSCOPE_STORE", str(place))
    assert "seen_before" not in analyze(hang, store="").to_dict() and not place.exists()
    assert analyze(hang).to_dict()["seen_before"]["times"] == 0 and place.exists()


def test_the_command_lists_shows_and_notes(inside: Run, tmp_path: Path) -> None:
    where = {"HANGSCOPE_STORE": str(tmp_path / "store.db")}
    incident = FIXTURES / "rank_conditional_barrier"
    assert inside("analyze", incident, "-q", "--json", "r.json", **where).returncode == 0
    listed = inside("history", "list", **where).stdout.splitlines()
    assert len(listed) == 2 and "Rank 0 called barrier" in listed[1]
    name = listed[1].split()[0]
    assert inside("history", "note", name[:6], "fixed by #12", **where).returncode == 0
    shown = inside("history", "show", name, **where).stdout
    assert "fixed by #12" in shown and "hangscope-report.html" in shown and "save_checkpoint" in shown
    assert inside("history", "similar", "r.json", **where).stdout.splitlines()[-1] == "Not seen before."
    found = inside("history", "similar", FIXTURES / "rank_conditional_detail", **where).stdout
    assert name in found and found.endswith("Note: fixed by #12.\n")
    assert inside("history", "list", "--json", "--cause", "uneven_loader", **where).stdout == "[]\n"


@pytest.mark.slow
def test_two_thousand_incidents_take_a_fifth_of_a_second(tmp_path: Path) -> None:
    from hangscope.history.entry import Use
    from hangscope.history.hosts import ranked

    place = str(tmp_path / "store.db")
    uses = [
        [Use(f"gpu{n * 7 % 512 + i:04}", "0-7", int(i == 0 and n % 9 == 0), "3", "") for i in range(16)]
        for n in range(2_000)
    ]
    with open_store(place) as store:
        for number in range(2_000):
            store.add(entry(f"{number:05}", note=str(number)), uses[number])
    began = time.process_time()
    with open_store(place, writing=False) as store:
        matches = similar(ONE, store.entries())
    middle = time.process_time()
    with open_store(place, writing=False) as store:
        counts = store.use_counts()
    found = ranked(counts), ranked(counts, gpus=True)
    assert matches and all(found)
    assert middle - began < 0.2 and time.process_time() - middle < 0.2
