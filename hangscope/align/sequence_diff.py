"""How one rank's calls differ from its peers': an insertion, a deletion, or neither; and which side continues the pattern.

Works on sequences of tokens (small ints). A token stands for a call's op, sizes, dtype and, for the soft comparison,
its call site.
"""

from __future__ import annotations

from collections.abc import Sequence

from hangscope.model.dataclass import dataclass

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
    for i in range(length):
        behind = slice(i + 1, i + 1 + MAX_EDIT)
        if own[i] == reference[i] or (reference[i] not in own[behind] and own[i] not in reference[behind]):
            continue  # alike, or neither side comes to what the other calls here: a call from another line
        in_step, found = 0, []
        for size in range(1, MAX_EDIT + 1):
            in_step = max(in_step, _agreement(own, i + size, reference, i + size))
            for kind, a, b in (("extra", i + size, i), ("missing", i, i + size)):
                matched = _agreement(own, a, reference, b)
                # As many other calls in their place explain the rest as well: then nothing was inserted.
                if matched >= 2 and matched > in_step:
                    found.append(Edit(kind, i, size, matched))
        if found:
            return max(found, key=lambda edit: edit.confirmed - 2 * edit.length)
    return None


def _agreement(a: Sequence[int], i: int, b: Sequence[int], j: int) -> int:
    """Return how many tokens agree from a[i] and b[j] on, without a break; 0 where one side has none left."""
    count = 0
    limit = min(len(a) - i, len(b) - j, 512)
    while count < limit and a[i + count] == b[j + count]:
        count += 1
    return count


def occurrences(history: Sequence[int]) -> list[tuple[int, int]]:
    """Return where the end of `history` occurred before: (how long a context, the place behind it), longest first, then latest.

    Linear (the Z function of the reversed history).
    """
    n, backwards = len(history), history[::-1]
    alike = [0] * n  # how many tokens from there on equal the beginning
    left = right = 0
    for i in range(1, n):
        alike[i] = min(right - i, alike[i - left]) if i < right else 0
        while i + alike[i] < n and backwards[alike[i]] == backwards[i + alike[i]]:
            alike[i] += 1
        if i + alike[i] > right:
            left, right = i, i + alike[i]
    return sorted(((min(alike[k], MAX_CONTEXT), n - k) for k in range(1, n) if alike[k]), reverse=True)


def continues(history: Sequence[int], token: int) -> bool | None:
    """Return whether `token` continues the pattern that `history` has repeated so far; None: too little history.

    True where the token followed a context at least half as long as the longest repeated one: at the end of a loop both
    one more round and the leaving of it have happened before, and both continue the pattern.
    """
    found = occurrences(history)
    longest = found[0][0] if found else 0
    own = next((context for context, place in found if history[place] == token), 0)
    return None if own == 0 and longest < 2 else own * 2 >= longest


def expected(history: Sequence[int], length: int) -> list[int]:
    """Return where in `history` the next tokens stand that its pattern calls for; empty where it has none."""
    return [
        place + k % (len(history) - place) for _, place in occurrences(history)[:1] for k in range(length)
    ]


def left_out(history: Sequence[int], token: int, due: int | None = None) -> list[int]:
    """Return where in `history` the tokens stand that its pattern calls for before `token`; empty where it is next, or not in reach.

    `due`: the token that is known to have been next, as others made it there.
    """
    ahead = expected(history, MAX_CONTEXT)
    tokens = [history[place] for place in ahead]
    start = 0 if due is None else tokens.index(due) if due in tokens else len(tokens)
    return ahead[start : tokens.index(token, start)] if token in tokens[start:] else []
