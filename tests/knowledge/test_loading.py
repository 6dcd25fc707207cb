"""Knowledge is data: what is read, and what a broken rule costs."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangscope.errors import Note
from hangscope.knowledge.loading import known_packages, own_rules, parse_rules, read_rules
from hangscope.knowledge.rule import FramePattern
from hangscope.model.incident import Frame

GOOD = """
library = "ours"
roots = ["ourlib", "vendored/ourlib"]
docs = "https://wiki.example.org/ourlib"

[[rule]]
api = "ourlib.publish"
frames = ["io.py:publish"]
implies = "checkpoint"
legal = "is called by every rank"
advice = ["Call {api} on every rank."]
owner = "team storage"
runbook = "https://wiki.example.org/publish"
"""


def parsed(text: str) -> tuple[int, list[str]]:
    notes: list[Note] = []
    rules = parse_rules(text, "rules.toml", notes)
    return len(rules), [str(note) for note in notes]


def test_a_rule_is_read_with_its_header() -> None:
    notes: list[Note] = []
    (rule,) = parse_rules(GOOD, "rules.toml", notes)
    assert notes == []
    assert (rule.api, rule.library, rule.owner) == ("ourlib.publish", "ours", "team storage")
    assert rule.docs == "https://wiki.example.org/ourlib"
    assert rule.frames == (
        FramePattern("ourlib/io.py", "publish"),
        FramePattern("vendored/ourlib/io.py", "publish"),
    )


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        ('advise = ["x"]', "unknown key 'advise'"),
        ('implies = "sometimes"', "implies 'sometimes'"),
        ('cause = ["a_bug"]', "'a_bug' is no cause"),
        ('frames = ["io.py"]', "'io.py' is no frame"),
        ('frames = ["io.py:12"]', "'io.py:12' is no frame"),
        ("advice = [1]", "advice must be a text or a list of texts"),
        ('docs = "javascript:alert(1)"', "docs must be an http(s) link"),
        ("legal = 3", "legal must be a text"),
    ],
)
def test_a_broken_rule_is_one_note_and_the_others_count(broken: str, says: str) -> None:
    key = broken.split(" ")[0]
    rule = '[[rule]]\napi = "x.y"\nframes = ["x.py:y"]\nadvice = ["do"]\n'
    rule = "\n".join(line for line in rule.splitlines() if not line.startswith(f"{key} ="))
    count, notes = parsed(GOOD + rule + "\n" + broken + "\n")
    assert count == 1
    (note,) = notes
    assert "rules.toml" in note and "rule 2" in note and says in note and "left out" in note


@pytest.mark.parametrize(
    "rule", ['api = "x"', 'advice = ["x"]', 'implies = "barrier"', 'cause = "stuck_rank"']
)
def test_a_rule_says_when_it_applies_and_what_it_says(rule: str) -> None:
    count, notes = parsed(f"[[rule]]\n{rule}\n")
    assert (count, len(notes)) == (0, 1)


def test_what_is_no_toml_is_one_note() -> None:
    count, notes = parsed("[[rule]\napi = 1")
    assert (count, len(notes)) == (0, 1) and "no TOML" in notes[0]


@pytest.mark.parametrize("text", ["rule = 3", "rule = [1]", "[rule]\napi='x'", "a = " + "[" * 5000])
def test_other_toml_never_raises(text: str) -> None:
    count, notes = parsed(text)
    assert count == 0 and notes


def test_a_file_that_cannot_be_read_is_a_note(tmp_path: Path) -> None:
    notes: list[Note] = []
    assert read_rules(tmp_path / "none.toml", notes) == ()
    large = tmp_path / "large.toml"
    large.write_bytes(b"#" * ((1 << 20) + 1))
    assert read_rules(large, notes) == ()
    assert ["could not be read" in notes[0].message, "larger than 1 MiB" in notes[1].message] == [True, True]


def test_hangscopes_own_rules_are_whole() -> None:
    rules = own_rules()
    names = [(rule.library, rule.api) for rule in rules if rule.api]
    assert len(names) == len(set(names)) >= 60
    for rule in rules:
        assert rule.docs or rule.implies in ("loop", "signal handler") or not rule.api, rule.api
        assert rule.versions or not rule.api
        if rule.api and rule.implies != "loop":
            assert rule.legal, rule.api


def test_a_pattern_is_the_end_of_a_path() -> None:
    pattern = FramePattern("accelerate/state.py", "wait_for_everyone")
    assert pattern.matches(Frame("wait_for_everyone", "/x/site-packages/accelerate/state.py", 1))
    assert pattern.matches(Frame("wait_for_everyone", "C:\\x\\accelerate\\state.py", 1))
    assert not pattern.matches(Frame("wait_for_everyone", "/x/myaccelerate/state.py", 1))
    assert not pattern.matches(Frame("wait", "/x/accelerate/state.py", 1))
    assert FramePattern("strategies/*.py", "barrier").matches(Frame("barrier", "/a/strategies/ddp.py", 2))


def test_the_packages_of_the_libraries_are_known() -> None:
    assert {
        "torch",
        "lightning",
        "accelerate",
        "transformers",
        "deepspeed",
        "torchmetrics",
        "megatron",
    } <= known_packages()
