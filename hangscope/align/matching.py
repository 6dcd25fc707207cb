"""Which calls match: what members must agree on for one collective to complete, op by op.

The rule of each op follows from what its transport needs: element counts and element types of the buffers that every
member must have. Shapes with equal element counts match, as NCCL and gloo see only counts.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from math import prod

import numpy as np

from hangscope.model.incident import CallKind, Sizes
from hangscope.model.kinds import Kinds

MatchKey = tuple[object, ...]


def numel(sizes: Sizes) -> tuple[int, ...]:
    """Return the element count of each tensor."""
    return tuple(prod(shape) for shape in sizes)


def match_key(kind: CallKind) -> MatchKey:
    """Return a key that is equal for two calls of one group if and only if they can complete together."""
    ins, outs = numel(kind.input_sizes), numel(kind.output_sizes)
    types_out = kind.output_dtypes or kind.input_dtypes
    if not kind.op:
        return ("", kind.stack)  # a call that DETAIL let nobody make: its line is all that is known
    if kind.op == "barrier" or kind.op.startswith("all_to_all"):
        return (kind.op,)  # members may legally send different sizes to all; the splits are not recorded
    if kind.op in ("gather", "reduce"):
        return (kind.op, ins, kind.input_dtypes)  # only the root has outputs
    if kind.op == "scatter":
        return (kind.op, outs, types_out)  # only the root has inputs
    # Where DETAIL prints what goes in alone, it is as much as comes out.
    return (kind.op, ins, outs or ins, kind.input_dtypes, types_out, kind.root)


def match_keys(kinds: Sequence[CallKind]) -> list[MatchKey]:
    """Return the key of each of a job's kinds, equal where two calls can complete together.

    A recorder of before version 2.1 kept no element types. Its calls take those of the equal call that another rank's
    recorder did keep them of (the first of several, in sorted order): what was not recorded is no difference.
    """
    known = [kind for kind in kinds if not _lacks_types(kind)]
    known.sort(key=lambda kind: (kind.input_dtypes, kind.output_dtypes), reverse=True)
    typed = {_bare(kind): kind for kind in known} if len(known) < len(kinds) else {}
    return [match_key(typed.get(_bare(k), k) if typed and _lacks_types(k) else k) for k in kinds]


def hard_keys(kinds: Kinds) -> np.ndarray:
    """Return for each kind the number of its match key (int64): equal numbers match."""
    return numbers(match_keys(kinds.alone))[kinds.plain]


def numbers(things: Iterable[Hashable]) -> np.ndarray:
    """Return a number for each thing (int64), equal for equal things."""
    index: dict[Hashable, int] = {}
    return np.array([index.setdefault(thing, len(index)) for thing in things], np.int64)


def _lacks_types(kind: CallKind) -> bool:
    return bool(kind.input_sizes or kind.output_sizes) and not kind.input_dtypes and not kind.output_dtypes


def _bare(kind: CallKind) -> CallKind:
    """Return a kind without its element types and call site."""
    return replace(kind, input_dtypes=(), output_dtypes=(), stack=(), told=False)


def difference(a: CallKind, b: CallKind) -> str:
    """Return how two calls differ: `op`, `dtype`, `shape`, `root`, or `` where they match as far as both were recorded."""
    if _lacks_types(a) or _lacks_types(b):
        a, b = _bare(a), _bare(b)
    if match_key(a) == match_key(b):
        return ""
    if a.op != b.op or not a.op:
        return "op"
    if a.root != b.root:
        return "root"
    outs = numel(a.output_sizes), numel(b.output_sizes)
    if numel(a.input_sizes) == numel(b.input_sizes) and (outs[0] == outs[1] or () in outs):
        return "dtype"
    return "shape"
