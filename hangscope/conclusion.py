"""The nouns of what is concluded: a fact and where it stands, a call as it is quoted, the verdict. Ranks are global."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hangscope.frames import Stack
from hangscope.incident import Group, Sizes


@dataclass(frozen=True, slots=True)
class Source:
    """Where a fact stands: a file relative to the analysed path, and a line where there is one."""

    file: str
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """One fact behind a verdict. `stance` is for, against or missing; `kind` is dump, log, stack, exit or method."""

    kind: str
    text: str
    rank: int | None = None
    source: Source | None = None
    stance: str = "for"


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another cause that the evidence allows, and why it was not chosen."""

    cause: str
    why: str


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One explanation that was weighed: what fits it, what contradicts it, and the one observation that would decide.

    `ranks` are global. `would_decide` tells it from the best explanation and is empty for the best one itself.
    """

    cause: str
    ranks: tuple[int, ...]
    fits: tuple[str, ...] = ()
    contradicts: tuple[str, ...] = ()
    would_decide: str = ""


@dataclass(frozen=True, slots=True)
class CallRef:
    """One call as a verdict quotes it. Frames are innermost first; `group` is set where it is another than the verdict's."""

    op: str
    seq: int | None
    frames: Stack = ()
    sizes: Sizes = ()
    dtypes: tuple[str, ...] = ()
    group: str | None = None


@dataclass(frozen=True, slots=True)
class Location:
    """The deepest user frame on the culprit's side, and whose it is (global rank)."""

    file: str
    line: int
    function: str
    rank: int | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The one root, what it is called, and how sure that is. See the README for the JSON form.

    `waiting_ranks` are all that wait, each in a call of its own group; `in_call` are those of them that are in the call
    which `group`, `op` and `seq` name. Both are global. `deciding` are indexes into `evidence`: what tells this cause from
    its rivals. `api` is the library call of the user's that contains the culprit's collective. `since` and `until` are ns
    since the epoch: the last progress and the end of the job, None where unknown.
    """

    cause: str
    confidence: str
    culprit_ranks: tuple[int, ...]
    category: str
    summary: str
    group: Group | None = None
    op: str | None = None
    seq: int | None = None
    is_p2p: bool = False
    waiting_ranks: tuple[int, ...] = ()
    in_call: tuple[int, ...] = ()
    explained: int = 0
    culprit_call: CallRef | None = None
    waiting_call: CallRef | None = None
    location: Location | None = None
    evidence: Sequence[Evidence] = ()
    advice: Sequence[str] = ()
    alternatives: Sequence[Alternative] = ()
    fingerprint: str = ""
    deciding: tuple[int, ...] = ()
    api: str | None = None
    since: int | None = None
    until: int | None = None
