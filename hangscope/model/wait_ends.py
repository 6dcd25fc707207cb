"""How the waits of ranks ended, as far as their own text says: by a timeout, by another error, or not at all."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from hangscope.model.dataclass import dataclass
from hangscope.model.rankset import agree, ranks_phrase


@dataclass(frozen=True, slots=True)
class WaitEnds:
    """The ranks (global) that reported a timeout, and those that raised another error, such as a lost connection. The others are blocked."""

    timed_out: tuple[int, ...] = ()
    failed: tuple[int, ...] = ()

    def among(self, ranks: Iterable[int]) -> WaitEnds:
        """Return the same of some ranks only."""
        some = set(ranks)
        return WaitEnds(
            tuple(r for r in self.timed_out if r in some), tuple(r for r in self.failed if r in some)
        )

    def clause(self, ranks: Collection[int]) -> str:
        """Return what became of ranks in a collective, its verb last: `ranks 0-1 timed out and rank 2 is blocked`."""
        parts = []
        for state, some in self.parts(ranks):
            verb = f"{agree(some, 'is', 'are')} {state}" if state == "blocked" else state
            parts.append(f"{ranks_phrase(some)} {verb}")
        return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))

    def state(self, ranks: Collection[int]) -> str:
        """Return the state of ranks: `blocked`, `timed out`, `failed`, or several as in `timed out or blocked`."""
        states = [state for state, _ in self.parts(ranks)]
        return " or ".join(filter(None, (", ".join(states[:-1]), *states[-1:])))

    def parts(self, ranks: Collection[int]) -> Iterator[tuple[str, list[int]]]:
        """Yield each state that occurs, with the ranks in it."""
        timed_out, failed = set(self.timed_out).intersection(ranks), set(self.failed).intersection(ranks)
        blocked = set(ranks) - timed_out - failed
        found = {"timed out": timed_out, "failed": failed, "blocked": blocked}
        yield from ((state, sorted(some)) for state, some in found.items() if some)
