"""Which calls match: what members must agree on for one collective to complete, op by op.

The rule of each op follows from what its transport needs: element counts and element types of the buffers that every
member must have. Shapes with equal element counts match, as NCCL and gloo see only counts.
"""

from __future__ import annotations

from math import prod

import numpy as np

from hangscope.model.incident import CallKind, Kinds, Sizes

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


def hard_keys(kinds: Kinds) -> np.ndarray:
    """Return for each kind the number of its match key (int32): equal numbers match."""
    index: dict[MatchKey, int] = {}
    numbers = [index.setdefault(match_key(kind), len(index)) for kind in kinds.alone]
    return np.array(numbers, dtype=np.int32)[kinds.plain]


def difference(a: CallKind, b: CallKind) -> str:
    """Return how two calls differ: `op`, `dtype`, `shape`, `root`, or `` where they match as far as both were recorded."""
    if match_key(a) == match_key(b):
        return ""
    if a.op != b.op or not a.op:
        return "op"
    if a.root != b.root:
        return "root"
    outs = numel(a.output_sizes), numel(b.output_sizes)
    if numel(a.input_sizes) == numel(b.input_sizes) and (outs[0] == outs[1] or () in outs):
        # What a log line or an old recorder does not tell is no difference.
        return "dtype" if all(kind.input_dtypes or kind.output_dtypes for kind in (a, b)) else ""
    return "shape"
