"""How one rank's calls differ from its peers': an insertion, a deletion, or neither; and which side continues the pattern.

Works on sequences of tokens (small ints). A token stands for a call's op, sizes, dtype and, for the soft comparison,
its call site.
"""

from __future__ import annotations

from collections.abc import Sequence

from hangscope.dataclass import dataclass

MAX_EDIT = 64  # the longest run of extra or missing calls that is looked for
MAX_CONTEXT = 96  # the longest history that a prediction is based on


@dataclass(frozen=True, slots=True)
class Edit:
    """One run of calls that a rank made in addition (`extra`) or left out (`missing`).

    `index` is the position in the rank's own sequence, `length` the number of calls, `confirmed` how many calls after
    it match again when shifted by `length`.
    """

    kind: str
    index: int
    length: int
    confirmed: int


def first_edit(own: Sequence[int], reference: Sequence[int]) -> Edit | None:
    """Return the first insertion or deletion that turns `reference` into `own`, or None.

    Both start at the same seq. Differences that stay in step (a rank that makes the same call from another line) are no
    edit. At least two calls must match again behind the edit, or all that are left; O(n * MAX_EDIT) at worst.
    """
    length = min(len(own), len(reference))
    start = 0
    while start < length:
        i = next((k for k in range(start, length) if own[k] != reference[k]), length)
        if i == length:
            return None
        behind = slice(i + 1, i + 1 + MAX_EDIT)
        if reference[i] not in own[behind] and own[i] not in reference[behind]:
            start = i + 1  # neither side comes to what the other calls here: a call from another line
            continue
        in_step = 0
        best: Edit | None = None
        for size in range(1, MAX_EDIT + 1):
            in_step = max(in_step, _agreement(own, i + size, reference, i + size))
            for kind, a, b in (("extra", i + size, i), ("missing", i, i + size)):
                matched = _agreement(own, a, reference, b)
                # As many other calls in their place explain the rest as well: then nothing was inserted.
                if (
                    matched >= 2
                    and matched > in_step
                    and (best is None or matched > best.confirmed + 2 * (size - best.length))
                ):
                    best = Edit(kind, i, size, matched)
            if best is not None and best.confirmed >= min(len(own), len(reference)) - i - best.length:
                break  # everything that is left matches
        if best is not None:
            return best
        start = i + 1
    return None


def _agreement(a: Sequence[int], i: int, b: Sequence[int], j: int) -> int:
    """Return how many tokens agree from a[i] and b[j] on, without a break; 0 where one side has none left."""
    count = 0
    limit = min(len(a) - i, len(b) - j, 512)
    while count < limit and a[i + count] == b[j + count]:
        count += 1
    return count


@dataclass(frozen=True, slots=True)
class Occurrence:
    """An earlier place whose context equals the end of a history: the token behind it stands at `position`."""

    position: int
    context: int


def occurrences(history: Sequence[int]) -> list[Occurrence]:
    """Return where the end of `history` occurred before, longest context first, then latest first. Linear."""
    n = len(history)
    matches = _prefix_matches(history[::-1])
    found = [Occurrence(n - k, min(matches[k], MAX_CONTEXT)) for k in range(1, n) if matches[k]]
    return sorted(found, key=lambda o: (-o.context, -o.position))


def _prefix_matches(sequence: Sequence[int]) -> list[int]:
    """Return for each position how many tokens from there on equal the sequence's own beginning (Z function)."""
    n = len(sequence)
    result = [0] * n
    left = right = 0
    for i in range(1, n):
        if i < right:
            result[i] = min(right - i, result[i - left])
        while i + result[i] < n and sequence[result[i]] == sequence[i + result[i]]:
            result[i] += 1
        if i + result[i] > right:
            left, right = i, i + result[i]
    return result


def continues(history: Sequence[int], token: int) -> bool | None:
    """Return whether `token` continues the pattern that `history` has repeated so far; None: too little history.

    True where the token followed a context at least half as long as the longest repeated one: at the end of a loop both
    one more round and the leaving of it have happened before, and both continue the pattern.
    """
    found = occurrences(history)
    if not found:
        return None
    longest = found[0].context
    own = max((o.context for o in found if history[o.position] == token), default=0)
    if own == 0 and longest < 2:
        return None
    return own * 2 >= longest


def expected(history: Sequence[int], length: int) -> list[int]:
    """Return where in `history` the next tokens stand that its pattern calls for; empty where it has none."""
    found = occurrences(history)
    if not found:
        return []
    start = found[0].position
    return [start + k % (len(history) - start) for k in range(length)]


def left_out(history: Sequence[int], token: int, due: int | None = None) -> list[int]:
    """Return where in `history` the tokens stand that its pattern calls for before `token`; empty where it is next, or not in reach.

    `due`: the token that is known to have been next, as others made it there.
    """
    ahead = expected(history, MAX_CONTEXT)
    tokens = [history[place] for place in ahead]
    if due is not None:
        start = tokens.index(due) if due in tokens else len(tokens)
        ahead, tokens = ahead[start:], tokens[start:]
    return ahead[: tokens.index(token)] if token in tokens else []
