"""Which calls match: what members must agree on for one collective to complete, op by op.

The rule of each op follows from what its transport needs: element counts and element types of the buffers that every
member must have. Shapes with equal element counts match, as NCCL and gloo see only counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from math import prod

from hangscope.incident import PROVING_OPS, CallKind, Sizes

MatchKey = tuple[object, ...]


def numel(sizes: Sizes) -> tuple[int, ...]:
    """Return the element count of each tensor."""
    return tuple(prod(shape) for shape in sizes)


@lru_cache(maxsize=65536)
def match_key(kind: CallKind) -> MatchKey:
    """Return a key that is equal for two calls of one group if and only if they can complete together."""
    return _key(kind)


def _key(kind: CallKind) -> MatchKey:
    ins, outs = numel(kind.input_sizes), numel(kind.output_sizes)
    if not kind.op:
        return ("", kind.stack)  # a call that DETAIL let nobody make: its line is all that is known
    if kind.op.startswith("all_to_all"):
        return (kind.op,)  # members may legally send different sizes; the splits are not recorded
    if kind.op in ("gather", "reduce"):
        return (kind.op, ins, kind.input_dtypes)  # only the root has outputs
    if kind.op == "scatter":
        return (kind.op, outs, kind.output_dtypes or kind.input_dtypes)  # only the root has inputs
    if kind.op == "broadcast":
        return (kind.op, outs or ins, kind.output_dtypes or kind.input_dtypes, kind.root)
    if kind.op == "barrier":
        return (kind.op,)
    if kind.op == "all_reduce" and not outs:  # DETAIL prints what goes in alone, and it is reduced in place
        return (kind.op, ins, ins, kind.input_dtypes, kind.input_dtypes, kind.root)
    return (kind.op, ins, outs, kind.input_dtypes, kind.output_dtypes, kind.root)


def match_keys(kinds: Sequence[CallKind]) -> list[MatchKey]:
    """Return the key of each of a job's kinds, equal where two calls can complete together.

    A recorder of before version 2.1 kept no element types. Its calls take those of the equal call that another rank's
    recorder did keep them of (the first of several, in sorted order): what was not recorded is no difference.
    """
    lacking = [_lacks_types(kind) for kind in kinds]
    if not any(lacking):
        return [_key(kind) for kind in kinds]
    wanted = {_bare(kind) for kind, lacks in zip(kinds, lacking, strict=True) if lacks}
    typed: dict[CallKind, CallKind] = {}
    for kind, lacks in zip(kinds, lacking, strict=True):
        if not lacks and (bare := _bare(kind)) in wanted:
            typed[bare] = min(typed.get(bare, kind), kind, key=lambda k: (k.input_dtypes, k.output_dtypes))
    return [
        _key(typed.get(_bare(kind), kind) if lacks else kind)
        for kind, lacks in zip(kinds, lacking, strict=True)
    ]


def _lacks_types(kind: CallKind) -> bool:
    return bool(kind.input_sizes or kind.output_sizes) and not kind.input_dtypes and not kind.output_dtypes


def _bare(kind: CallKind) -> CallKind:
    """Return a kind without its element types and call site."""
    return replace(kind, input_dtypes=(), output_dtypes=(), stack=(), told=False)


def difference(a: CallKind, b: CallKind) -> str:
    """Return how two calls differ: `op`, `dtype`, `shape`, `root`, or `` where they match as far as both were recorded."""
    if a.op != b.op:
        return "op"
    if _lacks_types(a) or _lacks_types(b):
        a, b = _bare(a), _bare(b)
    if not a.op:
        return "" if match_key(a) == match_key(b) else "op"
    if match_key(a) == match_key(b):
        return ""
    if a.root != b.root:
        return "root"
    outs = numel(a.output_sizes), numel(b.output_sizes)
    if numel(a.input_sizes) == numel(b.input_sizes) and (outs[0] == outs[1] or () in outs):
        return "dtype"
    return "shape"


def proves_participation(kind: CallKind) -> bool:
    """Return whether one member's completion proves that all members took part."""
    return kind.op in PROVING_OPS
