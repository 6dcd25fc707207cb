"""What torch's own analyzer of dumps printed: which ranks did not join a call, or called it with something else."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from math import prod

from hangscope.explain.finding import Absent, Finding, StuckCall
from hangscope.explain.statements.statements import Statements
from hangscope.explain.text.partitions import different
from hangscope.explain.text.reports import Report
from hangscope.ingest.recorder.values import user_op
from hangscope.ingest.torch_logs.analyzer import AnalyzerReport
from hangscope.knowledge.callsite import user_frame
from hangscope.model.incident import CallKind, Incident, group_label
from hangscope.model.rankset import counted
from hangscope.model.regex import regex

_SIZES = regex(r"\[([\d, ]{0,200})\]")
_DIGITS = regex(r"\d{1,18}")
_TYPES = regex(r"'(\w{1,40})'")


def analyzer(incident: Incident, statements: Statements) -> Report | None:
    """Take what torch's own analyzer printed as a hint: it compares all ranks with the first one that it read, which may be the outlier."""
    report = next((e for e in statements.all(AnalyzerReport) if e.named), None)
    if report is None:
        return None
    if (apart := _in_several_calls(statements)) is not None:
        return apart
    waiting = tuple(r for r in report.expected if r not in report.named)
    it = f"{report.op or 'the collective'}{f' seq {report.seq}' if report.seq is not None else ''}"
    form = "called {}" if report.error == "COLLECTIVE_TYPE_MISMATCH" else f"passed {{}} to {it}"
    call, kinds = _call(report, report.wanted), dict[int, CallKind]()
    sides: dict[str, list[int]] = defaultdict(list)
    absent = "did not join" if report.what == "absent" else "differed in"
    for n, rank in enumerate(report.named):
        found = report.found[n] if n < len(report.found) else ""
        sides[form.format(found) if found else f"{absent} {it}"].append(rank)
        if found or report.own_op:
            kinds[rank] = CallKind(report.own_op) if report.own_op else _call(report, found)
    for rank in waiting:
        kinds[rank] = call
        sides[form.format(report.wanted) if report.wanted else f"scheduled {it}"].append(rank)
    finding: Finding
    if report.what == "absent":
        finding = Absent(report.named, StuckCall(None, report.seq, None, call), waiting=waiting)
    else:
        alike: dict[CallKind | None, list[int]] = defaultdict(list)
        for rank in (*waiting, *report.named):
            alike[kinds.get(rank)].append(rank)
        finding = different(report.seq, [*alike.values()], kinds, statements)
    named = report.named
    if 0 < len(waiting) < len(named) and len(sides) == 2:
        named = waiting  # the rank that all others are compared with is the outlier
    finding = replace(finding, guess=True, events=(report,))
    return Report("according to torch's analyzer", sides, named, [report], finding)


def _in_several_calls(statements: Statements) -> Report | None:
    """Read reports that each lack those who joined the call of another one: no rank is missing, they are in different calls."""
    reports = [e for e in statements.all(AnalyzerReport) if e.what == "absent" and e.op and e.expected]
    joined = [tuple(r for r in e.expected if r not in e.named) for e in reports]
    members = {r for e in reports for r in e.expected}
    if len(reports) < 2 or not all(joined) or sorted(r for side in joined for r in side) != sorted(members):
        return None
    calls = [CallKind(e.op or "", "", e.sizes, stack=e.frames) for e in reports]
    kinds = {rank: call for call, side in zip(calls, joined, strict=True) for rank in side}
    sides: dict[str, Sequence[int]] = {}
    for e, call, side in zip(reports, calls, joined, strict=True):
        number = f" seq {e.seq}" if e.seq is not None else ""
        group = f" on group {group_label(e.group_name, e.group_desc or '')}" if e.group_name else ""
        at = user_frame(call.stack)
        place = f", called at {at.file.rsplit('/', 1)[-1]}:{at.line} ({at.name})" if at else ""
        sizes = f" of {counted(prod(e.sizes[0]), 'element')}" if e.sizes else ""
        sides[f"issued {e.op}{number}{sizes}{group}{place}"] = side
    finding = different(reports[0].seq, joined, kinds, statements)
    seqs = {rank: e.seq for e, side in zip(reports, joined, strict=True) for rank in side}
    if finding.culprits and finding.stuck.rank is not None:
        stuck = replace(finding.stuck, seq=seqs[finding.stuck.rank])
        finding = replace(finding, stuck=stuck, own=replace(finding.own, seq=seqs[finding.culprits[0]]))
    by = "torch's analyzer lists each rank as missing from a collective of the others"
    return Report(by, sides, finding.culprits, reports, replace(finding, events=tuple(reports[:3])))


def _call(report: AnalyzerReport, printed: str) -> CallKind:
    """Return the collective of a report, with what was printed of it: another name, sizes or element types."""
    op = report.op or ""
    if report.error == "COLLECTIVE_TYPE_MISMATCH" and printed:
        return CallKind(user_op(printed))
    if types := _TYPES.findall(printed):  # of one that it found: what is wanted, what goes in, what comes out
        return CallKind(op, "", (), (), (types[-1],))
    return CallKind(op, "", tuple(tuple(map(int, _DIGITS.findall(size))) for size in _SIZES.findall(printed)))
