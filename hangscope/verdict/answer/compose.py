"""One answer from all observations: what the lines show, which ranks to examine, the one next thing to collect.

It is given only without dumps: what dumps show is in the verdict itself. If the verdict names a cause, other lines add facts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import replace

from hangscope.causes.case import Case
from hangscope.explain.text.group_size import world_size
from hangscope.explain.text.stop import PROOFS, find_stop
from hangscope.model.conclusion import Collect, Verdict
from hangscope.model.regex import regex
from hangscope.verdict.answer import comparisons, course, ends, places, stacks, text, waits
from hangscope.verdict.answer.lines import lines, messages
from hangscope.verdict.answer.observation import Observation, bare, pasted
from hangscope.verdict.answer.only_suspect import claiming, naming, only_suspect
from hangscope.verdict.answer.remarks import position, remarks
from hangscope.verdict.phrasing import (
    EXPLANATION,
    adds,
    as_sentence,
    cited,
    fitting,
    imperative,
    sentence_case,
    words,
)

Reader = Callable[[Case], Observation | None]

#: What is read before the lines of the table, the most telling first.
READERS: tuple[Reader, ...] = (
    ends.process,
    course.unfinished,
    stacks.loader_workers,
    stacks.stacks,
    places.sides,
    stacks.doings,
)
#: What counts where none of these shows anything.
LATER: tuple[Reader, ...] = (
    stacks.unplaced,
    ends.exceptions,
    comparisons.other_values,
    comparisons.last_lines,
    comparisons.equally_far,
    places.gpus,
    ends.interrupts,
)
_UNTOLD = regex(r"(?:does|do) not (?:show|name|tell)|shows neither|which of them was first")
_MOST = 3  # observations of one answer
_LEAST_ROOM = 60
_KNOWN_BY = 30  # characters at the end of a line


def _read(case: Case, readers: Sequence[Reader]) -> list[Observation]:
    return [seen for read in readers if (seen := read(case)) is not None]


def observations(case: Case, ended: Observation | None) -> list[Observation]:
    """Return what the text shows, the most telling first; `ended` is that it ends well."""
    printed = [*lines(case)]
    found = [
        *(s for s in printed if s.blamed),
        *_read(case, (places.guarded, *READERS)),
        *comparisons.reported(case),
        *_read(case, (comparisons.listed, comparisons.tabled)),
        *filter(None, [text.of_others(case, [r for w in waits.waits(case) for r in w.ranks])]),
        *_read(case, (waits.timeouts, comparisons.connected, comparisons.alike)),
        *(s for s in printed if not s.blamed),
        *_read(case, (comparisons.announced, comparisons.adapters)),
    ]
    known = [*messages(case)]
    faults = [seen for entry, seen in known if not entry.benign and not entry.follows]
    found = [*(s for s in faults if s.blamed), *found, *(s for s in faults if not s.blamed)]
    found += [seen for seen in _read(case, LATER) if not (found and seen.proves)]
    found += [seen for entry, seen in known if entry.follows]
    found += [seen for entry, seen in known if entry.benign and seen.wanted]
    if ended is not None and not any(s.proves for s in found):
        return [ended, *found]
    moving = course.moving(case)
    if moving is None:
        return found
    slow = [s for s in found if s.suspects and not s.proves]  # who holds up a job that moves
    return [*slow, moving, *(s for s in found if s not in slow)]


def answered(case: Case, verdict: Verdict) -> Verdict:
    """Return a verdict on a text without dumps with its explanation, its suspects and what to collect."""
    ended = course.over(case)
    seen = observations(case, ended)
    if (only := only_suspect(case, verdict, seen)) is not None:
        verdict = naming(case, verdict, only)
    proved = any(s.proves for s in seen)
    unread = find_stop(case.statements) is not None and not (proved or ended is not None)
    if unread or not (verdict.cause == "unknown" or (proved and _by_silence(case, verdict, seen))):
        return _with_facts(case, verdict, seen)
    if not any(s.wanted for s in seen) and not case.stacks:
        errors, last = text.main(case), course.last_line(case)
        if errors is not None and not errors.wanted and last is not None:
            errors = replace(errors, wanted=last.wanted, what=last.what)
        seen = [s for s in (errors or last,) if s is not None]
    # Where ranks are adds to an answer, and is none by itself.
    return (_of_lines if any(s.wanted for s in seen) else _with_facts)(case, verdict, seen)


def _by_silence(case: Case, verdict: Verdict, seen: Sequence[Observation]) -> bool:
    """Return whether a doubtful verdict names ranks only because no line of theirs is here, and no line names them."""
    culprits = verdict.culprit_ranks
    heard = any(map(case.statements.of_rank.get, culprits))
    named = any(s.blamed and s.suspects == culprits for s in seen)
    return verdict.confidence == "low" and bool(culprits) and not heard and not named


def _of_lines(case: Case, verdict: Verdict, seen: Sequence[Observation]) -> Verdict:
    """Return the answer to a text that establishes no cause: its most telling lines."""
    main = next(s for s in seen if s.wanted)
    facts = [main.shows, *(s.shows for s in seen if s is not main)][:_MOST]
    if not main.suspects and (roll := text.roll(case, main.shows)):
        facts.append(roll)
    nexts = _nexts(case, seen if any(s.proves for s in seen) else [main])
    if verdict.cause == "unknown" or not verdict.culprit_ranks:
        verdict = claiming(verdict, main)
    suspects = tuple(sorted({*verdict.culprit_ranks, *main.suspects}))
    return replace(_completed(case, verdict, facts, nexts, _lines_of(seen, facts)), suspect_ranks=suspects)


def _with_facts(case: Case, verdict: Verdict, seen: Sequence[Observation]) -> Verdict:
    """Return a verdict whose claim stays, followed by the facts of the lines that it rests on and of others."""
    deciding = [verdict.evidence[i] for i in verdict.deciding]
    at = {f.source.line: f for f in deciding if f.source is not None and f.source.line}
    low = verdict.confidence == "low"
    if verdict.culprit_ranks:
        moves, named = course.moving(case), set(verdict.culprit_ranks)
        others = [s for s in seen if s.suspects and named.isdisjoint(s.suspects)]
        seen = [s for s in seen if s.proves or (s != moves and s not in others)]
    its = [s for s in seen if s.reads(deciding) or _is_of(s, verdict)]
    shown = [s.shows for s in (*its, *(s for s in seen if s not in its and not s.vague))]
    if not its:
        shown = [*text.before_an_abort(case, {*at}), *(cited(f) for f in at.values() if f.quoted), *shown]
    act, _, wait = verdict.summary.rpartition("; ")
    said = act if act and any(_covers(fact, wait) for fact in shown[:_MOST]) else verdict.summary
    claim = [] if shown and _covers(shown[0], verdict.summary) else [said]
    if find_stop(case.statements) is not None:
        shown = [*text.of_ranks(case, verdict.culprit_ranks, {*at}), *shown]
    first, *rest = [*claim, *shown]
    apart = []
    for line in case.statements.outlier_lines:
        alone = line.telling and line.ranks == verdict.culprit_ranks
        if alone or (verdict.culprit_ranks and {*verdict.culprit_ranks} <= {*line.printers}):
            apart.append(line.says())
    facts = [first, *new([*apart[:1], *rest], first)][: _MOST + 1]
    # The rule's own advice counts, unless lines name the culprits or establish the cause, or the verdict is doubtful.
    asking = [s for s in its if low or s.cause == verdict.cause or (s.blamed and s.reads(deciding))]
    suspects = {*verdict.suspect_ranks, *(r for s in its[:1] for r in s.suspects)}
    of_facts, read = _nexts(case, [s for s in seen if s.shows in facts]), {*at, *_lines_of(seen, facts)}
    verdict = _completed(case, verdict, facts, _nexts(case, asking), read, of_facts)
    return replace(verdict, suspect_ranks=tuple(sorted(suspects)))


def _completed(
    case: Case,
    verdict: Verdict,
    facts: Sequence[str],
    nexts: Sequence[Collect],
    read: Set[int],
    later: Sequence[Collect] = (),
) -> Verdict:
    """Return a verdict with these facts, and with what to collect next or its own advice where nothing is, then what facts ask for."""
    asked, present = [imperative(item.text) for item in nexts], text.present(case)
    own = [step for step in verdict.advice if not present or text.without(step, present)]
    step = f"Next: {asked[0][:1].lower()}{asked[0][1:]}" if asked else "".join(own[:1])
    if asked:  # what lines ask for says more than a step of which a part is in the text, or than what any hang asks for
        own = [s for s in own if verdict.cause != "unknown" and text.without(s, present) == s]
    first, of_facts = 1 if asked else 2, [imperative(item.text) for item in later]
    unlike, agreed = text.settings(case)
    step = agreed[0] if agreed else step
    steps = [*agreed, *asked[:1], *own[:first], *asked[1:], *of_facts, *own[first:]]
    apart = [*filter(None, [comparisons.outputs(case)]), *unlike]
    facts = [*facts[:1], *apart, *facts[1:], *text.shown_of(case, facts)]
    collect = nexts or (verdict.collect if verdict.confidence == "low" else [])
    if not pasted(case):  # a job's own folder: what was not recorded can be recorded next time
        steps, collect = [*steps[:2], *verdict.advice], [*nexts, *verdict.collect]
    added = [*remarks(case, verdict), position(case, verdict), ends.victims(case, verdict)]
    text_of = _paragraph(case, facts, [*added, *_nobody(case, verdict, facts)], step, read)
    return replace(verdict, explanation=text_of, collect=[*collect], advice=list(dict.fromkeys(steps))[:3])


def _nobody(case: Case, verdict: Verdict, facts: Sequence[str]) -> list[str]:
    """Return that nobody is to blame for an end from outside; or that a pasted text names nobody, where its job stopped and no fact says so."""
    named = {*verdict.culprit_ranks, *verdict.suspect_ranks}
    if verdict.category == "external" and not named:
        return [ends.after_the_end(case)]
    if named or not pasted(case) or find_stop(case.statements) is None or _UNTOLD.search(" ".join(facts)):
        return []
    world, reported = world_size(case.statements), case.statements.ranks(*PROOFS)
    stated = any(text.ALL_OF_THEM in fact for fact in facts)
    if world and world > 1 and reported == set(range(world)) and not stated:
        return [f"All {world} ranks report that: the text does not show which rank is to blame"]
    return ["The text does not show which rank is to blame"]


def _lines_of(seen: Sequence[Observation], facts: Sequence[str]) -> Set[int]:
    """Return the numbers of the lines that these facts were read from."""
    return {e.line for s in seen if s.shows in facts for e in s.events}


def _is_of(seen: Observation, verdict: Verdict) -> bool:
    """Return whether lines name the ranks of a verdict, or establish its cause where it names nobody."""
    if not verdict.culprit_ranks:
        return bool(seen.cause) and seen.cause == verdict.cause
    return seen.suspects == verdict.culprit_ranks and (seen.blamed or verdict.confidence == "low")


def _course(case: Case, facts: Sequence[str]) -> str:
    """Return how far the job was; only from where to where its steps went, if they did, where a fact quotes the same line."""
    far = ", and ".join(filter(None, (course.course(case), course.silence(case))))
    if (steps := course.went_on(case)) and any(steps[4:] in fact for fact in facts):
        far = sentence_case(far.removeprefix(f"{steps}; "))
    quoted = bare(far.partition("'")[2]).rstrip("'…")[-_KNOWN_BY:]
    return course.went_on(case) if quoted and any(quoted in fact for fact in facts) else far


def _nexts(case: Case, seen: Sequence[Observation]) -> list[Collect]:
    """Return what to collect, the most useful first, each once, and nothing that is in the text."""
    present = text.present(case)
    found: dict[str, Collect] = {}
    for item in (s.next for s in seen):
        if item is not None and (wanted := text.without(item.text, present) if present else item.text):
            found.setdefault(wanted, replace(item, text=wanted))
    return [*found.values()][:3]


def _covers(shows: str, summary: str) -> bool:
    """Return whether what lines show holds nearly all words of a summary."""
    return 4 * len(words(summary) - words(shows)) <= len(words(summary))


def new(shown: Sequence[str], known: str) -> Iterator[str]:
    """Yield what is shown beyond what is known."""
    seen = words(known)
    for sentence in shown:
        if adds(sentence, seen):
            seen |= words(sentence)
            yield sentence


def _paragraph(case: Case, facts: Sequence[str], added: Sequence[str], step: str, read: Set[int]) -> str:
    """Return the facts, what is added to them, how far the job was, what else the text has, and the next step, in the length of an explanation."""
    end = as_sentence(step) if step else ""
    room = EXPLANATION - len(end) - 1
    first, *rest = [as_sentence(fact) for fact in facts if fact] or [""]
    kept = [fitting([first], max(room, _LEAST_ROOM), " ")]
    far = _course(case, facts)
    unsaid = text.unsaid(case, " ".join((*facts, far, step)), read) if pasted(case) else ()
    for sentence in (*rest[:1], *added, *rest[1:], far, *unsaid):
        if sentence and len(" ".join([*kept, as_sentence(sentence)])) <= room:
            kept.append(as_sentence(sentence))
    return fitting([" ".join(filter(None, [*kept, end]))], EXPLANATION)
