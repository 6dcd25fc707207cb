"""What torch's own tools print about the dumps of all ranks, where that was pasted or collected instead of the dumps.

    Not all ranks joining collective, sequence number: 4
    internal record id: 3
    group info: 0:default_pg
    collective: nccl:all_reduce
    missing ranks: {3, 4}

(torch/distributed/flight_recorder/components/types.py and utils.py; before 2.9 tools/flight_recorder. Up to 2.12 the first
line has a colon for the comma.) Which ranks it blames depends on the order of its inputs, so they are a hint.

torch.distributed.debug writes such tables into pages about all ranks every minute, one file each (`start_debug_server(dump_dir=...)`):

    PARTIAL DATA: 3/4 workers responded
      Rank 2: TimeoutError:
    --- Collectives ---
      id    group_id  pass_check      collective_seq_id    p2p_seq_id    record_id  pg_desc       collective_name ...
       3           0  True                            4             0            3  0:default_pg  nccl:all_reduce    [[1024]] ... {2}

(torch/distributed/debug/_frontend.py and _debug_handlers.py of torch 2.15; the tables are those of torch's own analyzer. Their
stacks, `=== Rank 3: http://gpu07:25999/... ===`, are read with all other stacks.)
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator

from hangscope.ingest.lines.blocks import Found, block
from hangscope.ingest.lines.forms import any_of, says
from hangscope.ingest.recorder.values import user_op
from hangscope.ingest.torch_logs.c10d import GroupEvent, ranks_in
from hangscope.model.events import Event
from hangscope.model.incident import Frame, Sizes, Stack
from hangscope.model.regex import regex

_LINES, _FRAMES = 24, 64  # of one report, and of its stack
_TENSOR, _INTEGER = regex(r"\[([\d, ]*)\]"), regex(r"\d{1,18}")
#: the error of calls that are at different stages, not of different calls
_STATE = "COLLECTIVE_STATE_MISMATCH"


def _report(found: Found) -> Iterator[Event]:
    """Yield the report; of what its lines state about several ranks, mismatches of collectives count."""
    fields = found.caught(AnalyzerReport)
    if op := found.last("op"):
        fields["op"] = user_op(op.split()[0])
    if sizes := found.last("sizes"):
        fields["sizes"] = tuple(tuple(map(int, _INTEGER.findall(one))) for one in _TENSOR.findall(sizes))
    frames = [Frame(name, file, int(line)) for name, file, line in found.all("function", "code", "at")]
    fields["frames"] = tuple(frames[:_FRAMES])
    errors = {int(m["culprit"]): m for _, m in found.parts if "culprit" in m.groupdict()}
    unlike = {rank: match for rank, match in sorted(errors.items()) if match["error"] != _STATE}
    if errors:
        first = next(iter((unlike or errors).values()))
        wanted, made = first["wanted"] if unlike else "", tuple(m["made"] or "" for m in unlike.values())
        fields |= {"named": tuple(unlike), "error": first["error"], "wanted": wanted or "", "found": made}
    yield found.first.event(AnalyzerReport, **fields)


class AnalyzerReport(
    GroupEvent, same_by=("what", "seq", "group_name", "named"), rank_fields=("named", "expected")
):
    """One report of torch's analyzer. `what` is absent or unlike; all ranks are global; `error` as it names the mismatch.

    A row of its table has no `seq`, and states what the named rank issued (`own_op`). `sizes` and `frames` (innermost first) are of the
    call of those who joined.
    For calls that are unlike, `wanted` and `found` are what it printed of the call that it took for right and of that of each of the
    `named`, in their order: a call's name, sizes or element types.
    """

    what: str
    seq: int | None = None
    op: str | None = None
    own_op: str | None = None
    named: tuple[int, ...] = ()
    expected: tuple[int, ...] = ()
    sizes: Sizes = ()
    frames: Stack = ()
    error: str | None = None
    wanted: str = ""
    found: tuple[str, ...] = ()


REPORT = block(
    says(r"Not all ranks joining collective[,:] sequence number: (?P<seq>\d{1,18})", what="absent"),
    says(r"Collective sequence number: (?P<seq>\d{1,18}) has errors", what="unlike"),
    says(r"Collective (?P<seq>\d{1,18}) at entry \d{1,18} errors", what="unlike"),
    says(r"Input/output mismatch in the collective sequence number: (?P<seq>\d{1,18})", what="unlike"),
    regex(r"^\s*group info: (?P<group_name>[^\s:]{1,200})(?::(?P<group_desc>.{1,200}))?$"),
    regex(r"^\s*collective: (?:[\w.-]{1,40}:)?(?P<op>[\w ><?-]{1,80})$"),
    regex(r"^\s*input sizes: (?P<sizes>\[\[[\[\]\d, ]{0,400}\])"),
    regex(r"^\s*(?P<function>[\w.<>]{1,100}) at (?P<code>[^\s:]{1,400}):(?P<at>\d{1,7})$"),
    regex(r"^\s*missing ranks: \{(?P<named>[\d, ]{1,60000})\}"),
    regex(r"^\s*expected ranks: \{(?P<expected>[\d, ]{1,60000})\}"),
    regex(
        r"Culprit rank (?P<culprit>\d{1,7}); Error type: (?P<error>[A-Z_]{3,60})"
        r"(?:, Expected [\w ]{1,40}: '(?P<wanted>\{[^{}]{1,80}\}|[^']{1,400})' does not\s{1,3}match found [\w ]{1,40}: "
        r"'(?P<made>\{[^{}]{0,80}\}/\{[^{}]{0,80}\}/\{[^{}]{0,80}\}|[^']{1,400})')?"
    ),
    ends=regex(r"^\s*(?:error msg:|$)"),
    lines=_LINES + _FRAMES,
    made=_report,
)


class AnalyzerUndecided(Event, same_by=("unseen",), calm=True, rank_fields=("unseen",)):
    """The analyzer's message that it cannot decide without the dumps of the `unseen` ranks (global)."""

    unseen: tuple[int, ...]
    forms = (says(r"because we missed FR dumps from ranks \(\{(?P<unseen>[\d, ]{1,60000})\}\)"),)


_CELL = regex(
    r"(?P<op>[a-z]\w{2,40})\((?:[^()]{0,400}?, )?input_sizes=(?P<sizes>\[[\[\]\d, ]{0,400}\]), "
    r"(?:[^()]{0,400}?, )?state=(?P<state>\w{1,20})\)"
)
_PAIRED = frozenset({"send", "recv", "coalesced"})
_LEAST = 3  # columns of which one may be the outlier


def _table(found: Found) -> Iterator[Event]:
    """Yield the report of the first row in which one column differs from all others."""
    ranks = [int(rank) for rank in re.findall(r"\bRank (\d{1,7})\b", found.first.text)]
    rows: dict[int, dict[int, re.Match[str]]] = defaultdict(dict)  # by line, by the place of its column
    lines = {line.number: line for line, _ in found.parts}
    for line, cell in found.parts[1:]:
        rows[line.number][cell.start()] = cell
    places = next((list(cells) for cells in rows.values() if len(cells) == len(ranks)), [])
    if len(places) < _LEAST or len(set(ranks)) < len(places):
        return
    for number, cells in rows.items():
        if cells.keys() - set(places) or any(cell["op"] in _PAIRED for cell in cells.values()):
            return
        issued = {at: cells[at].group("op", "sizes") if at in cells else None for at in places}
        (usual, most), *others = Counter(issued.values()).most_common()
        if not others:
            continue
        outlier = others[0][0]
        late = outlier is None and any(cell["state"] == "completed" for cell in cells.values())
        if usual is not None and most == len(places) - 1 and not late:
            yield lines[number].event(
                AnalyzerReport,
                what="absent" if outlier is None else "unlike",
                op=usual[0],
                own_op=outlier[0] if outlier is not None else None,
                named=tuple(r for r, at in zip(ranks, places, strict=True) if issued[at] == outlier),
                expected=tuple(sorted(ranks)),
            )
        return


TABLE = block(
    *any_of(("Rank 0 ", "Rank 0,"), r"\bRank 0\b.*\bRank \d{1,7}\b"), _CELL, lines=4096, gap=3, made=_table
)


_GONE = regex(r"TimeoutError$|[A-Za-z]{0,40}(?:Connect|Connection|Disconnected|OSError)\w{0,20}$")
_SET = regex(r"\{\d{1,7}(?:, \d{1,7}){0,20000}\}")
_KEYS = regex(r"[{,] ?(\d{1,7}): (?=[A-Z]\w{2,40}\()")
_ROWS = 20_000
_CELLS = 5  # of a row at least, from its sizes on


class NoAnswer(Event, by_launcher=True, size_field="world"):
    """The debug server of `rank` did not answer, where those of others of the `world` ranks did: it is gone or timed out."""

    world: int


def _silent(found: Found) -> Iterator[Event]:
    """Yield the ranks that did not answer; others answered that they cannot do that."""
    answered, world = (int(number) for number in found.parts[0][1].groups())
    for line, match in found.parts[1:]:
        rank = int(match["silent"])
        if rank < world and answered and _GONE.match(match["error"]):
            yield line.event(NoAnswer, rank=rank, world=world)


def _rows(found: Found) -> Iterator[Event]:
    """Yield the report on each collective with missing ranks, or that ranks issued differently."""
    for line, row in found.parts[1:]:
        cells = re.split(r" {2,}", row.groupdict().get("cells", "").strip())
        if len(cells) < _CELLS:
            continue
        expected, state, *rest = cells[2:]
        missing = next((cell for cell in rest if _SET.fullmatch(cell)), "")
        unlike = "" if missing else " ".join(cell for cell in rest if cell.startswith("{"))
        named = ranks_in(missing) or tuple(sorted({int(rank) for rank in _KEYS.findall(unlike)}))
        if _SET.fullmatch(expected) and named and state != "completed":
            yield line.event(
                AnalyzerReport,
                what="absent" if missing else "unlike",
                seq=int(row["seq"]),
                op=user_op(row["op"]),
                named=named,
                expected=ranks_in(expected),
                group_name=row["group"],
                group_desc=row["desc"],
            )


SUMMARY = block(
    says(r"^PARTIAL DATA: (?P<answered>\d{1,7})/(?P<world>\d{1,7}) workers responded"),
    regex(r"^  Rank (?P<silent>\d{1,7}): (?P<error>\w{0,80})"),
    lines=_ROWS,
    gap=0,
    made=_silent,
)
PAGE_TABLE = block(
    says("^--- Collectives ---"),
    regex(
        r"^\s{0,40}\d{1,18} {2,}\S+ {2,}(?:True|False) {2,}(?P<seq>\d{1,18}) {2,}\S+ {2,}\S+ {2,}"
        r"(?P<group>[^\s:]{1,200})(?::(?P<desc>\S{1,200}))? {2,}(?:\w{1,40}:)?(?P<op>\w{1,80})(?P<cells> {2,}.*)$"
    ),
    ends=regex("^---(?! Collectives)"),
    lines=_ROWS,
    made=_rows,
)
