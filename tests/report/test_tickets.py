"""Text, Markdown, Jira and Slack: what they lead with, that nothing quoted becomes markup, and how they are cut."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from hangscope.model.conclusion import Collect, Evidence, Hypothesis
from hangscope.report.markdown import DIALECTS, cut_to, render_markdown
from hangscope.report.pictures.stacks import SourceFolder, snippets
from hangscope.report.reasons import deciding_facts, mentions
from hangscope.report.schema.document import SeenBefore
from hangscope.report.text import render_text
from hangscope.report.words import below_title, duration, utc
from tests.conftest import FIXTURES, analyze
from tests.report.samples import document

NASTY = "*bold* _it_ <b>x</b> @channel [l](http://x) {code} |cell| `tick` #1 ~s~ <!here>"


def with_evidence(text: str):
    good = document("hang_8")
    assert good.verdict is not None
    statements = (Evidence("dump", text, 3),)
    return replace(good, headline=text, verdict=replace(good.verdict, evidence=statements, deciding=(0,)))


def test_text_leads_with_what_the_verdict_calls_deciding() -> None:
    good = document("hang_8")
    assert good.verdict is not None
    last = len(good.verdict.evidence) - 1
    chosen = replace(good, verdict=replace(good.verdict, deciding=(last,)))
    text = " ".join(render_text(chosen, width=110).split())
    wanted = " ".join(good.verdict.evidence[last].text.split())[:50]
    assert chosen.verdict is not None
    assert wanted in [" ".join(f.text.split())[:50] for f in deciding_facts(chosen.verdict)]
    assert text.index("why:") < text.index("accounts for:") < text.index("confidence:") < text.index("next:")


def test_the_ledger_takes_the_place_of_the_alternatives() -> None:
    good = document("hang_8")
    rows = (
        Hypothesis("rank_conditional_collective", (3,), ("its call is there alone",)),
        Hypothesis("uneven_loader", (3,), (), ("the line is inside the loop",), "a stack of rank 3"),
    )
    told = replace(good, hypotheses=rows)
    for shown in (render_text(told, width=110), render_markdown(told)):
        flat = " ".join(shown.replace("\\", "").split())
        assert "the line is inside the loop; to confirm: a stack of rank 3" in flat


@pytest.mark.parametrize("dialect", DIALECTS)
def test_nothing_quoted_becomes_markup(dialect: str) -> None:
    text = render_markdown(with_evidence(NASTY), dialect)
    if dialect in ("markdown", "gitlab"):
        assert not re.search(
            r"(?<!\\)[<@*_\[]\w", re.sub(r"`[^`\n]*`|\*\*[A-Z][\w ,]*:? ?\*\*", "", text.split("\n| | |")[0])
        )
    elif dialect == "jira":
        assert (
            r"\*bold\*" in text and "{code}" not in text and r"\|cell\|" in text and "h2. hangscope" in text
        )
    else:
        assert (
            "<!here>" not in text
            and "&lt;!here&gt;" in text
            and "<b>" not in text
            and "@channel" not in re.sub(r"`[^`\n]*`", "", text)
        )


def test_gitlab_refers_to_nothing_and_obeys_no_command() -> None:
    text = render_markdown(with_evidence("/close !12 ~bug %3 $7 &9 and 100% of 5 & more"), "gitlab")
    assert "`/close` `!12` `~bug` `%3` `$7` `&9` and 100% of 5 & more" in text


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_ticket_has_the_title_the_host_the_duration_and_the_report(dialect: str) -> None:
    good = document("hang_8")
    assert good.verdict is not None and good.page is not None
    culprits = tuple(replace(c, host="gpu07") for c in good.verdict.culprits)
    verdict = replace(good.verdict, culprits=culprits, since=str(10**18), until=str(10**18 + 600 * 10**9))
    seen = SeenBefore(2, "2026-11-12", "2026-11-20", "job-8812", note="restart the data server")
    told = replace(good, verdict=verdict, report_path="/reports/17.html", seen_before=seen)
    text = re.sub(r"[`{}\\]", "", render_markdown(told, dialect))
    assert f"hangscope: {good.title}" in text.splitlines()[0]
    for words in (
        "on gpu07",
        ", for 10 min",
        "/reports/17.html",
        verdict.fingerprint,
        "2 times before",
        "job-8812",
    ):
        assert words in text


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_identifier_can_be_pasted_from_a_ticket(dialect: str) -> None:
    text = render_markdown(with_evidence("rank 3 left TORCH_NCCL_ASYNC_ERROR_HANDLING at 0"), dialect)
    name = "TORCH_NCCL_ASYNC_ERROR_HANDLING"
    wanted = "{{" + name.replace("_", r"\_") + "}}" if dialect == "jira" else f"`{name}`"
    assert wanted in text and not re.search("[\u200b-\u200f\u2060-\u2064]", text)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("limit", [200, 900, 4096])
def test_what_is_cut_says_how_much_and_keeps_to_its_limit(dialect: str, limit: int) -> None:
    whole = render_markdown(document("hang_8"), dialect)
    cut = cut_to(whole, limit)
    assert len(cut.encode()) <= limit
    if len(whole.encode()) > limit:
        *lines, last = cut.rstrip("\n").split("\n")
        kept = "\n".join(lines)
        assert whole.startswith(kept)
        assert f"[{len(whole.splitlines()) - len(lines)} lines cut" in last
    assert cut_to(whole, None) == whole


@pytest.mark.parametrize(
    ("text", "ranks", "wanted"),
    [
        ("rank 3 is in barrier", (3,), True),
        ("ranks 0-2,5: all_reduce", (5,), True),
        ("ranks 0-2, 5 and 7: all_reduce", (7,), True),
        ("ranks 0-1016:8 wait", (16,), True),
        ("ranks 0-1016:8 wait", (17,), False),
        ("seq 3 on group 3", (3,), False),
        ("Ranks 1 and 3", (1,), True),
    ],
)
def test_who_a_sentence_speaks_of(text: str, ranks: tuple[int, ...], wanted: bool) -> None:
    assert mentions(text, ranks) is wanted


def test_source_is_read_only_where_it_was_named_and_only_below_it(tmp_path: Path) -> None:
    incident = FIXTURES / "rank_conditional_barrier"
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "train.py").write_text("".join(f"line_{n} = {n}\n" for n in range(1, 60)))
    page = analyze(incident / "dumps", source=folder).document.page
    assert page is not None and len(page.snippets) == 2
    snippet = page.snippets[0]
    assert snippet.line == 20 and len(snippet.lines) == 7 and dict(snippet.lines)[20] == "line_20 = 20"
    bare = analyze(incident / "dumps").document.page
    assert bare is not None and bare.snippets == ()
    (tmp_path / "secret.py").write_text("x = 1\n")
    (folder / "link.py").symlink_to(tmp_path / "secret.py")
    assert SourceFolder(folder).lines("/workspace/link.py") == []
    assert SourceFolder(folder).lines("../secret.py") == []
    assert snippets((), SourceFolder(folder)) == ()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0041, "4.1 ms"),
        (12, "12 s"),
        (600.95, "10 min 1 s"),
        (119.9, "2 min"),
        (7200, "2 h"),
        (25500, "7 h 5 min"),
    ],
)
def test_a_duration_reads_as_people_write_it(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_time_that_no_calendar_holds_is_not_shown() -> None:
    assert utc(1_773_300_000 * 10**9) == "2026-03-12 07:20:00 UTC"
    assert utc(2**70) == ""


def test_no_explanation_repeats_the_title_above_it() -> None:
    title = "Rank 0 called barrier (train.py:20) while the others called all_reduce"
    claim = "Rank 0 (host n1) called barrier (train.py:20) while the others called all_reduce([8] Float)"
    rest = "Ranks 1-3 issued all_reduce([8] Float). See n1."
    assert below_title(title, f"{claim}; {rest[0].lower()}{rest[1:]}") == rest
    assert below_title(title, f"{claim}; ranks 1-3 are blocked.").startswith(
        "Rank 0 (host n1) called barrier"
    )
    assert below_title(title, f"{claim}.") == ""
    assert below_title(title, "Rank 0 called barrier; ranks 1-3 are blocked.").startswith(
        "Rank 0 called barrier"
    )


def test_what_is_to_be_done_next_is_not_said_to_be_missing_too() -> None:
    good = document("hang_8")
    assert good.verdict is not None
    wanted = ("Collect the dump of rank 3", "Take a stack of rank 3", "Fetch the log of rank 5")
    known = tuple(Evidence("method", text, stance="missing") for text in wanted)
    advised = replace(good.verdict, evidence=known, deciding=(), advice=(wanted[0],))
    told = replace(good, verdict=replace(advised, collect=(Collect((3,), "stack", wanted[1]),)))
    for shown in (render_text(told, width=110, verbose=True), render_markdown(told)):
        assert [text in shown for text in wanted] == [True, "next" in shown, True], shown
    lines = render_text(told, width=110, verbose=True).splitlines()
    assert [line.strip() for line in lines if "= missing:" in line] == ["= missing: Fetch the log of rank 5"]
