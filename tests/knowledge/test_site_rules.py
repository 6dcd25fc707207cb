"""A site's own rules: name, advice, owner and runbook; a broken one is a warning; and where they may stand."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import hangscope
from hangscope.cli import main
from tests.conftest import FIXTURES

BARRIER = FIXTURES / "rank_conditional_barrier" / "dumps"
RULES = """
[[rule]]
api = "ours.keep"
frames = ["train.py:save_checkpoint"]
implies = "checkpoint"

[[rule]]
op = ["barrier"]
group = ["default_*"]
cause = ["rank_conditional_collective"]
advice = ["{who} should call ours.keep."]
owner = "the training team"
runbook = "https://wiki.example.org/keep"

[[rule]]
op = ["send"]
advice = ["This one does not fit."]

[[rule]]
op = ["barrier"]
log = ["*never printed*"]
advice = ["Nor does this one."]
"""


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "site.toml"
    path.write_text(RULES)
    return path


def test_what_fits_comes_first_with_owner_and_runbook(rules: Path) -> None:
    verdict = hangscope.analyze(BARRIER, rules=rules).verdict
    assert verdict is not None and verdict.cause == "rank_conditional_collective"
    assert list(verdict.advice[:3]) == [
        "Rank 0 should call ours.keep.",
        "Ask the training team, who own this.",
        "Runbook: https://wiki.example.org/keep",
    ]
    assert not any("does not fit" in line or "Nor does" in line for line in verdict.advice)


@pytest.mark.slow
def test_a_site_names_a_call_of_its_own_library(rules: Path) -> None:
    """Its library may lie beside the scripts; the line to show stays the deepest one that was written there."""
    plain, ruled = hangscope.analyze(BARRIER).verdict, hangscope.analyze(BARRIER, rules=rules).verdict
    assert plain is not None and ruled is not None
    assert (plain.api, ruled.api) == (None, "ours.keep")
    assert "Rank 0 alone called ours.keep" in ruled.summary
    assert (ruled.location, ruled.cause, ruled.culprit_ranks) == (
        plain.location,
        plain.cause,
        plain.culprit_ranks,
    )


def test_the_variable_counts_as_well(rules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HANGSCOPE_RULES", f"{rules.parent / 'missing.toml'}:{rules}")
    report = hangscope.analyze(BARRIER)
    assert report.verdict is not None and "Rank 0 should call ours.keep." in report.verdict.advice
    (warning,) = [str(w) for w in report.warnings if "missing.toml" in str(w)]
    assert "could not be read" in warning


@pytest.mark.slow
def test_the_command_takes_rules_and_warns_of_broken_ones(rules: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.toml"
    broken.write_text('[[rule]]\nop = ["barrier"]\nadvise = ["x"]\n' + RULES)
    out = tmp_path / "r.html"
    result = CliRunner().invoke(main, ["analyze", str(BARRIER), "--rules", str(broken), "-o", str(out), "-v"])
    assert result.exit_code == 0, result.output
    words = " ".join(result.output.split())
    assert "ours.keep" in words and "unknown key 'advise'" in words


def test_a_file_that_was_asked_for_must_exist(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["analyze", str(BARRIER), "--rules", str(tmp_path / "none.toml")])
    assert result.exit_code == 2 and "no file of rules" in result.output
    with pytest.raises(hangscope.HangscopeError):
        hangscope.analyze(BARRIER, rules=[3])  # type: ignore[list-item]


@pytest.mark.slow
def test_the_library_call_for_hooks_takes_rules(rules: Path) -> None:
    report = hangscope.analyze_safely(BARRIER, rules=rules)
    assert report.verdict is not None and "Rank 0 should call ours.keep." in report.verdict.advice
