"""Whether two reports describe the same bug: the parts of the fingerprint side by side, and other differences. Ranks, hosts and seqs change from run to run and do not identify a bug; cause, collective, group and lines do."""

from __future__ import annotations

from hangscope.knowledge.callsite import user_frame
from hangscope.model.dataclass import dataclass
from hangscope.report.schema.document import Document, VerdictPart
from hangscope.report.words import some_ranks


@dataclass(frozen=True, slots=True)
class Part:
    """One thing compared; `decides`: it is a part of the fingerprint."""

    name: str
    first: str
    second: str
    decides: bool

    @property
    def equal(self) -> bool:
        """Return whether both say the same."""
        return self.first == self.second


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two reports side by side. `same`: they describe the same bug."""

    same: bool
    why: str
    parts: tuple[Part, ...]

    def text(self, first: str, second: str) -> str:
        """Return the comparison for a terminal; `first` and `second` are what the reports are called."""
        lines = [
            f"{'same bug' if self.same else 'not the same bug'}: {self.why}",
            f"  A: {first}",
            f"  B: {second}",
        ]
        for title, decides in (
            ("what the fingerprint is made of", True),
            ("what changes from run to run", False),
        ):
            chosen = [part for part in self.parts if part.decides is decides and (part.first or part.second)]
            lines += ["", f"{title}:"] if chosen else []
            for part in chosen:
                if part.equal:
                    lines.append(f"    {part.name}: {part.first}")
                else:
                    lines += [
                        f"  ! {part.name}:",
                        f"      A {part.first or 'not known'}",
                        f"      B {part.second or 'not known'}",
                    ]
        return "\n".join(lines) + "\n"


def compare(first: Document, second: Document) -> Comparison:
    """Return the comparison of two reports.

    Without a verdict on one side nothing is the same bug, unless neither job hangs.
    """
    one, other = first.verdict, second.verdict
    parts = (
        Part("status", first.status, second.status, True),
        *(Part(*row, True) for row in zip(_DECIDING, _fingerprint(one), _fingerprint(other), strict=True)),
        *(Part(*row, False) for row in zip(_CHANGING, _run(first), _run(second), strict=True)),
    )
    if one is None or other is None:
        same = one is None and other is None and first.status == second.status == "no_hang"
        return Comparison(same, "neither job hangs" if same else "one of them has no verdict", parts)
    if one.cause == other.cause == "unknown":
        return Comparison(False, "both causes are unknown, which says nothing of their being one", parts)
    same = bool(one.fingerprint) and one.fingerprint == other.fingerprint
    if same:
        return Comparison(True, f"both have the fingerprint {one.fingerprint}", parts)
    differing = ", ".join(part.name for part in parts if part.decides and not part.equal)
    return Comparison(False, f"they differ in {differing or 'their fingerprint'}", parts)


_DECIDING = ("cause", "call", "group", "the culprit's line", "the line of those that wait")
_CHANGING = ("ranks", "hosts", "seq", "line numbers", "waiting ranks", "world size")


def _fingerprint(verdict: VerdictPart | None) -> tuple[str, ...]:
    if verdict is None:
        return ("",) * len(_DECIDING)
    at = verdict.location
    frame = user_frame(verdict.waiting_call.frames) if verdict.waiting_call is not None else None
    return (
        verdict.cause,
        verdict.op or "",
        verdict.group.desc or verdict.group.name if verdict.group is not None else "",
        f"{at.file.rsplit('/', 1)[-1]} in {at.function}" if at is not None else "",
        f"{frame.file.rsplit('/', 1)[-1]} in {frame.name}" if frame is not None else "",
    )


def _run(document: Document) -> tuple[str, ...]:
    verdict = document.verdict
    if verdict is None:
        return ("", "", "", "", "", str(document.world_size))
    at = verdict.location
    hosts = sorted({c.host for c in verdict.culprits if c.host})
    return (
        some_ranks(verdict.culprit_ranks) if verdict.culprit_ranks else "nobody",
        ", ".join(hosts[:8]) + (f" and {len(hosts) - 8} more" if len(hosts) > 8 else ""),
        "" if verdict.seq is None else str(verdict.seq),
        f"{at.file}:{at.line}" if at is not None else "",
        some_ranks(verdict.waiting_ranks) if verdict.waiting_ranks else "",
        str(document.world_size),
    )
