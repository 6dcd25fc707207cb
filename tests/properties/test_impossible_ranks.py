"""Ranks that no job has, or that belong to no group, in every place where dumps and lines name one: no rule fails on them."""

from __future__ import annotations

import json
import pickle
import re
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import hangscope
from tests.conftest import FIXTURES, analyze
from tests.dump_writer import Recorder, job, stuck

#: notes that tell of a fault of the analyzer's own
OWN_FAULTS = {"rule_failed", "parser_failed", "pictures_failed", "internal"}
#: of the large ones, those that no job has: a world of as many as there may be takes seconds, for each example
RANKS = (
    "-1",
    "0",
    "1",
    "2",
    "3",
    "4",
    "7",
    "63",
    "64",
    "255",
    "262144",
    "9999999",
    "1" * 12,
    "",
    "x",
    "?",
    "007",
    "1.5",
)
TEXTS = sorted(path.read_text(errors="replace") for path in (FIXTURES / "text").glob("*.txt"))
LOGS = [
    path.read_text(errors="replace")
    for name in (
        "raising_rank_torchrun",
        "killed_rank_torchrun",
        "rank_conditional_detail",
        "stuck_loader_detail",
    )
    for path in sorted((FIXTURES / name / "dumps").rglob("*"))
    if path.is_file() and path.suffix in (".log", ".err", ".out", ".txt")
]
_NAMED = re.compile(r"(?i)(?<=\[rank)\d+|(?<=\brank[ =:])\d+|(?<=\brank )\d+|(?<=ranks )\d+|(?<=ranks=)\d+|(?<=size=)\d+|(?<=default)\d+|(?<=: )\d+(?= \(local)|(?<=local_rank: )\d+|(?<=#)\d+")  # fmt: skip
_LISTED = re.compile(r"\[\d+(?:, ?\d+)*\]")


def odd(text: str, names: dict[str, str], members: str) -> str:
    """Return a text whose ranks are called otherwise, and whose lists of them are another."""
    text = _NAMED.sub(lambda match: names.get(match.group(), match.group()), text)
    return _LISTED.sub(lambda match: members or match.group(), text)


def members_of(data: st.DataObject) -> str:
    return data.draw(
        st.sampled_from(
            [
                "",
                "[]",
                "[-1]",
                "[0, 0, 0]",
                "[5, 6]",
                "[3, 1]",
                "[0, 262143]",
                "[0, 1, 99999999]",
                "['a']",
                "[1, 2, 3, 4, 5, 6, 7, 8]",
                "[0",
            ]
        )
    )


def dump_of(recorder: Recorder, data: st.DataObject) -> tuple[str, bytes]:
    """Return a dump under a name, with odd members, peers and ranks in some of its places."""
    dump: dict[str, Any] = recorder.dump()
    places = data.draw(
        st.sets(st.sampled_from(["members", "peer", "top", "group", "status", "name"]), max_size=3)
    )
    name = f"nccl_trace_rank_{recorder.rank}"
    number = data.draw(st.sampled_from(RANKS))
    if "members" in places:
        text = members_of(data)
        for config in dump["pg_config"].values():
            config["ranks"] = text
    for entry in dump["entries"][-3:]:
        if "peer" in places:
            entry["profiling_name"] = (
                f"nccl:{data.draw(st.sampled_from(['send', 'recv']))} {number}->{data.draw(st.sampled_from(RANKS))}"
            )
            entry["is_p2p"] = True
        if "group" in places:
            entry["process_group"] = (number, data.draw(st.sampled_from(["default_pg", "tp", ""])))
    if "top" in places:
        dump["rank"] = data.draw(st.sampled_from([-1, 3, 99, 2**18, 2**70, "1", None, 1.5]))
    if "status" in places:
        dump["pg_status"] = {
            number: {
                "last_enqueued_collective": 99,
                "last_started_collective": -1,
                "last_completed_collective": 2,
            }
        }
    if "name" in places:
        name = f"nccl_trace_rank_{number}"
    if data.draw(st.booleans()):
        return name.replace("/", "_"), pickle.dumps(dump, protocol=2)
    return name.replace("/", "_") + ".json", json.dumps(dump).encode()


def check(folder: Path) -> None:
    try:
        report = analyze(folder)
    except hangscope.NoInputError:
        return
    faults = [str(note) for note in report.warnings if note.code in OWN_FAULTS]
    assert not faults
    verdict = report.verdict
    if verdict is not None:
        assert all(0 <= rank < 2**18 for rank in (*verdict.culprit_ranks, *verdict.waiting_ranks))
    for text in (report.to_json(), report.to_text(verbose=True), report.to_markdown(), report.to_html()):
        assert "internal error" not in text and "could not be drawn" not in text


@settings(max_examples=5)
@given(data=st.data())
def test_lines_that_name_odd_ranks(data: st.DataObject) -> None:
    """Every form of line that is known here, of other ranks, beside the dumps of a job or alone."""
    names = {str(rank): data.draw(st.sampled_from(RANKS)) for rank in range(8)}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        texts = data.draw(st.lists(st.sampled_from([*TEXTS, *LOGS]), min_size=1, max_size=4))
        for number, text in enumerate(texts):
            file = data.draw(
                st.sampled_from(["job{}.log", "rank{}.err", "rank9999{}.out", "worker-{}.txt"])
            ).format(number)
            (folder / file).write_text(odd(text, names, members_of(data)))
        if data.draw(st.booleans()):
            for recorder in stuck(data.draw(st.integers(1, 4)), culprit=0):
                recorder.write(folder)
        check(folder)


@settings(max_examples=25)
@given(data=st.data())
def test_dumps_that_name_odd_ranks(data: st.DataObject) -> None:
    """Members, peers, groups and names that contradict each other."""
    size = data.draw(st.integers(1, 5))
    groups = data.draw(
        st.sampled_from(
            [
                None,
                {"0": ("default_pg", range(size)), "1": ("tp", range(size))},
                {"0": ("default_pg", range(size)), "5": ("pp", [size - 1])},
            ]
        )
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for recorder in job(size, groups=groups, backend=data.draw(st.sampled_from(["nccl", "gloo"]))):
            recorder.call("all_reduce", times=3)
            for group in recorder.groups:
                recorder.call(
                    data.draw(st.sampled_from(["all_gather", "barrier", "broadcast"])),
                    group,
                    state=data.draw(st.sampled_from(["completed", "started", "scheduled"])),
                )
            if data.draw(st.booleans()):
                file, content = dump_of(recorder, data)
                (folder / file).write_bytes(content)
            else:
                recorder.write(folder)
        if data.draw(st.booleans()):
            names = {str(rank): data.draw(st.sampled_from(RANKS)) for rank in range(8)}
            (folder / "job.log").write_text(odd(data.draw(st.sampled_from(TEXTS)), names, members_of(data)))
        check(folder)
