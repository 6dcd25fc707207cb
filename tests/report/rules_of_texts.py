"""What the sentences of a report say agrees with the verdict and with each other."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hangscope.report.html.page import Page
from hangscope.report.reasons import deciding_facts, names
from hangscope.report.schema.document import Document
from hangscope.verdict import phrasing
from tests.report.rules import DIFFERING

_QUOTED = re.compile(r"(?:(?<= is )|(?<= own: ))'[^'\n]{20,}'")  # what a job printed is not ours
_RAISED = re.compile(r"raised \w+: .*")  # the words of an exception are not ours
_EMPTY_SLOT = re.compile(
    r"(?<!returns )\bNone\b|\bnan\b|(?<!\w)\(\s*\)|\{\}|\bon group\s*(?:[,;)]|$)|\b(?:of|waits for|and|or) ranks?\s*(?:[,;)]|$)|(?<!same )\bseq\s*(?:[,;)]|$)|\bat\s*[,;)]|\s,|\s\.(?:\s|$)|;\s*\."
)
#: What no report may say: broken agreement, empty slots, words in a private sense, two statements that exclude each other.
NEVER = re.compile(
    r"fits? as well|no other cause fits|accounts for 0 of|explains:? \d|nconclusive: Inconclusive|\b[Mm]end(?:ed)? |"
    r"\b[Rr]anks \d[\d,:-]*(?:[,-]\d+)+ (?:was|is|has|does|waits) |\b[Rr]ank \d+ (?:were|are|have|do|wait) |waited for its peers|"
    r"\b0 (?:ranks|elements)\b(?! of)|\b(?:address|port|host) \?|whom\b|\bguilty\b|\binnocent\b|\bacquit|what was left|"
    r"\bno bug of the job|would decide|\bwaits behind\b|\bleft the loop\b|\bopen calls?\b|\bstands at\b|\bin a circle\b|\bodd one\b|"
    r"\ba guess\b|leads? to it\b|was not recorded|another an |while the others called (?:a|an unrecorded) collective|"
    r"text of 0 of|root cause is among rank \d|\bin a call\b|independent evidence agrees|[Cc]hain of waits|[Nn]ext: no |\bnone of rank\b(?! \d)"
)


def why_names_the_culprit(document: Document) -> Iterator[str]:
    """Why names the culprit, in a whole sentence."""
    verdict = document.verdict
    if verdict is None:
        return
    facts = deciding_facts(verdict)
    if verdict.culprit_ranks and not any(names(fact, verdict.culprit_ranks) for fact in facts):
        yield f"Why does not name the culprit: {[f.text for f in facts]}"


def no_slot_is_empty(document: Document) -> Iterator[str]:
    """No phrase of ours has an empty slot."""
    verdict = document.verdict
    texts = [document.headline, *document.confidence_why, *document.missing]
    if verdict is not None:
        texts += [*verdict.advice, *(a.why for a in verdict.alternatives)]
        texts += [e.text for e in verdict.evidence if e.kind not in ("log", "exit")]
        texts += [f.text for f in deciding_facts(verdict) if f.kind not in ("log", "exit")]
    if document.page and document.page.waitfor:
        texts += [n.label for n in document.page.waitfor.nodes] + list(document.page.waitfor.text)
    if document.page:
        texts += [c.standing for c in document.page.calls.classes] if document.page.calls else []
        texts += (
            [
                m.text
                for m in document.page.strip.moments
                if m.kind not in ("end", "watchdog", "dump", "termination")
            ]
            if document.page.strip
            else []
        )
        texts += [line for row in document.page.detail.ranks for line in row.waits]
        texts += [side.title for side in document.page.sides]
        texts += document.page.topology.spread if document.page.topology else ()
    first = Page(document).first
    texts += [text for text in (first.waiting, *first.reasons, *first.steps, *first.what) if text]
    word = document.headline.split(" ")[0]
    if word.isalpha() and word.islower() and word not in phrasing.PROGRAMS:
        yield f"the headline begins small: {document.headline[:60]!r}"
    for text in texts:
        if not text.strip() or (_EMPTY_SLOT.search(_QUOTED.sub("it", _RAISED.sub("", text)))):
            yield f"an empty slot in {text!r}"


def advice_fits_a_job_that_ended(document: Document) -> Iterator[str]:
    """A job that has ended is given no advice for a living one."""
    first = Page(document).first
    ended = (
        document.page is not None and document.page.strip is not None and document.page.strip.life == "ended"
    )
    for step in (*first.steps, *first.more_steps) if ended else ():
        if re.search(r"(?i)\b(take|get) (?:a |the )?(?:stack|dump)s?\b.*\bnow\b", step):
            yield f"advice for a living job of one that has ended: {step!r}"
    if ended and first.commands:
        yield "commands for a living job of one that has ended"


def the_ledger_agrees(document: Document) -> Iterator[str]:
    """The first explanation that was weighed is the verdict, and what it explains is not said to be unexplained."""
    verdict, weighed = document.verdict, document.hypotheses
    if verdict is None or not weighed:
        return
    best = weighed[0]
    if best.cause != verdict.cause or set(best.ranks) != set(verdict.culprit_ranks):
        yield f"the ledger begins with {best.cause} of {best.ranks}"
    if verdict.explains.of and verdict.explains.ranks == verdict.explains.of:
        for line in best.contradicts:
            if "does not account for" in line:
                yield f"it accounts for {verdict.explains.ranks} of {verdict.explains.of}, and {line}"


def possible_and_excluded_are_apart(document: Document) -> Iterator[str]:
    """Nothing is both possible and ruled out; at high nothing else remains possible, and no rival repeats the verdict."""
    verdict = document.verdict
    if verdict is None:
        return
    possible = {(h.cause, h.ranks) for h in document.hypotheses[1:]}
    if both := possible & {(r.cause, r.ranks) for r in document.ruled_out}:
        yield f"possible and ruled out: {both}"
    if verdict.confidence == "high" and (possible or verdict.alternatives):
        yield f"high, and {possible} remains possible"
    if any(a.cause == verdict.cause for a in verdict.alternatives):
        yield "an alternative repeats the verdict's cause"
    finer = verdict.cause.endswith("_mismatch") or verdict.cause in DIFFERING
    coarse = "collective_mismatch"
    if finer and verdict.cause != coarse and coarse in {a.cause for a in verdict.alternatives}:
        yield "collective_mismatch is an alternative to a finer cause"
    for excluded in document.ruled_out:
        if excluded.ranks == verdict.culprit_ranks and "does not account for" in excluded.because:
            yield f"{excluded.cause} of the same ranks accounts for fewer"
        if not excluded.because.strip():
            yield f"{excluded.cause} is ruled out by nothing"


def lengths_hold(document: Document) -> Iterator[str]:
    """Title, summary and explanation keep to their lengths, in whole words and sentences."""
    verdict = document.verdict
    limits = [(document.headline, 240)]
    if verdict is not None:
        limits += [(verdict.title, 80), (verdict.summary, 240), (verdict.explanation, 900)]
        if verdict.title.endswith("…"):
            yield f"the title breaks off: {verdict.title!r}"
        if not verdict.explanation.endswith((".", "…", "!", "?", ".)")):
            yield f"the explanation ends in the middle: {verdict.explanation[-40:]!r}"
    for text, most in limits:
        if not 0 < len(text) <= most:
            yield f"{len(text)} characters of at most {most}: {text!r}"


def confidence_and_its_reasons_agree(document: Document) -> Iterator[str]:
    """The reasons never claim more than the level, nor a full account beside ranks that would stay blocked."""
    verdict, why = document.verdict, " ".join(document.confidence_why)
    if verdict is None:
        return
    if verdict.confidence == "low" and "identifies the cause" in why:
        yield "low, and the evidence identifies the cause"
    if "does not account for" in why and verdict.explains.ranks == verdict.explains.of:
        yield f"accounts for all {verdict.explains.of} blocked ranks, and not for some of them"


def all_ranks_are_claimed_of_a_stated_size(document: Document) -> Iterator[str]:
    """Where no input states the number of ranks, nothing is said of all of them."""
    if "world size unknown" in document.partial.text:
        for text in _own_texts(document):
            if found := re.search(
                r"(?i)\b(?:every member|all (?:members|ranks) (?:joined|entered)|\d+ of \d+ ranks left)", text
            ):
                yield f"{found[0]!r} of an unknown number of ranks: {text!r}"


def _own_texts(document: Document) -> list[str]:
    """Return the sentences of a report, without quoted lines."""
    verdict = document.verdict
    texts = [document.headline, *document.confidence_why, *document.missing, document.partial.text]
    texts += [f for h in document.hypotheses[1:] for f in (*h.fits, *h.contradicts, h.would_decide)]
    if document.page is not None and document.page.waitfor is not None:
        texts += document.page.waitfor.text
    if verdict is None:
        return texts
    quoted = {e.text for e in verdict.evidence if e.kind in ("log", "exit", "stack")}
    own = [e.text for e in verdict.evidence if e.text not in quoted]
    whys = [a.why for a in verdict.alternatives]
    return [
        *texts,
        verdict.title,
        verdict.summary,
        *verdict.advice,
        *own,
        *whys,
        *(c.text for c in verdict.collect),
    ]


def no_listed_phrase_appears(document: Document) -> Iterator[str]:
    """No sentence of ours holds a phrase that no report may hold."""
    for text in _own_texts(document):
        if found := NEVER.search(text):
            yield f"{found[0]!r} in {text!r}"


RULES = (
    why_names_the_culprit,
    no_slot_is_empty,
    advice_fits_a_job_that_ended,
    the_ledger_agrees,
    possible_and_excluded_are_apart,
    lengths_hold,
    confidence_and_its_reasons_agree,
    all_ranks_are_claimed_of_a_stated_size,
    no_listed_phrase_appears,
)
