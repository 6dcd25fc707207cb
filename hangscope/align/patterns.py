"""The pattern that a sequence of tokens has repeated so far, and whether the next token continues it."""

from __future__ import annotations

from collections.abc import Sequence

MAX_CONTEXT = 96  # the longest history that a prediction is based on


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
