"""The collective-sequence table as a file: CSV, JSON lines, Parquet or aligned text, of the rows that are wanted.

Rows are wanted by rank, group, seq, state, or distance from the divergence, and are written some ranks at a time. The columns are
those of `hangscope.export.frame`. Times are text in JSON lines, because many readers lose integers above 2^53. Memory follows the
calls of the job as they are held for the analysis, and not the rows that are written.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from hangscope.align.p2p import PairInstance
from hangscope.align.waitgraph import Instance
from hangscope.analysis import Analysis
from hangscope.errors import UsageError
from hangscope.export.frame import COLUMNS, TableBuilder, is_p2p, queues_of
from hangscope.export.output import head_of
from hangscope.model.dataclass import dataclass
from hangscope.model.incident import Incident, Queue, State
from hangscope.model.rankset import spans
from hangscope.model.regex import regex
from hangscope.report.masking.secrets import presentable
from hangscope.report.words import listed

if TYPE_CHECKING:
    import pandas as pd

#: Collectives before and after the first pending one that `around_divergence` keeps.
AROUND = 8
_SEQS = regex(r"(\d{0,18}):(\d{0,18})|(\d{1,18})")


@dataclass(frozen=True, slots=True)
class Selection:
    """What to keep of each queue; the default keeps everything. `ranks` are ranges of global ranks, seqs are inclusive.

    `groups` match a group's name, description, role or label. `pending`: only calls that are not known to be complete.
    `around_divergence`: only calls near the first pending one of each stalled group.
    """

    ranks: tuple[range, ...] = ()
    groups: tuple[str, ...] = ()
    seqs: tuple[int | None, int | None] = (None, None)
    pending: bool = False
    around_divergence: bool = False

    @classmethod
    def of(cls, ranks: str | None, groups: tuple[str, ...], seqs: str | None, **more: bool) -> Selection:
        """Return the selection that a user wrote down. Raises UsageError."""
        wanted = parse_ranks(ranks) if ranks else ()
        return cls(wanted, groups, parse_seqs(seqs) if seqs else (None, None), **more)

    def parts(self, analysis: Analysis) -> Iterator[tuple[Queue, Any]]:
        """Yield the queues with wanted rows, rank by rank, each with the mask of those rows."""
        gids = self._gids(analysis.incident)
        near = stalls(analysis) if self.around_divergence else {}
        for queue in queues_of(analysis.incident):
            is_wanted = not self.ranks or any(queue.rank in span for span in self.ranks)
            if is_wanted and queue.gid in gids:
                mask = self._mask(queue, analysis.incident, near)
                if mask.any():
                    yield queue, mask

    def _mask(self, queue: Queue, incident: Incident, near: dict[tuple[int, bool], int]) -> Any:
        first, last = self.seqs
        mask = queue.seq >= (0 if first is None else first)
        if last is not None:
            mask &= queue.seq <= last
        if self.pending:
            mask &= queue.state != State.DONE
        if self.around_divergence:
            stall = near.get((queue.gid, is_p2p(incident, queue)))
            mask &= (abs(queue.seq - stall) <= AROUND) if stall is not None else False
        return mask

    def _gids(self, incident: Incident) -> Collection[int]:
        known = {g.gid: {g.name, g.desc, g.role, g.label} for g in incident.groups}
        for wanted in self.groups:
            if not any(wanted in names for names in known.values()):
                labels = sorted({g.label for g in incident.groups})
                hint = f"the groups are {listed(labels, 12)}" if labels else ""
                raise UsageError(f"no group is called {wanted!r}", hint)
        return {g for g, names in known.items() if not self.groups or not names.isdisjoint(self.groups)}


def stalls(analysis: Analysis) -> dict[tuple[int, bool], int]:
    """Return the first pending seq of each stalled group, by gid and whether it is of sends and receives."""
    found: dict[tuple[int, bool], list[int]] = defaultdict(list)
    verdict = analysis.judgement.verdict
    if verdict is not None and verdict.group is not None and verdict.seq is not None:
        found[verdict.group.gid, verdict.is_p2p] = [verdict.seq]
    for rank, calls in analysis.case.graph.open_calls.items():
        for call in calls[:1]:
            queue = analysis.incident.ranks[rank].p2p.get(call.gid)
            if isinstance(call.node, Instance):
                found[call.gid, False].append(call.node.seq)
            elif isinstance(call.node, PairInstance) and queue is not None:
                found[call.gid, True] += queue.seq[queue.order == call.order].tolist()
    return {key: min(seqs) for key, seqs in found.items() if seqs}


def parse_ranks(text: str) -> tuple[range, ...]:
    """Return the ranks of `3,8-15,0-63:8`, as hangscope writes them. Raises UsageError."""
    try:
        return tuple(spans(text))
    except ValueError as error:
        raise UsageError(str(error), "--rank 3,8-15,0-63:8") from None


def parse_seqs(text: str) -> tuple[int | None, int | None]:
    """Return the bounds of `40:60`, `40:`, `:60` or `40`, both included. Raises UsageError."""
    match = _SEQS.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{text[:40]!r} is not a range of sequence numbers", "--seq 40:60, 40:, :60 or 40")
    first, last, one = match.groups()
    if one:
        return int(one), int(one)
    return int(first) if first else None, int(last) if last else None


CHUNK = 65_536  # rows that are built at a time, or those of one queue where it holds more
FORMATS = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet", ".txt": "text"}
SCHEMA = b"hangscope.table/1"
_Frames = Callable[[], "Iterator[pd.DataFrame]"]  # the rows, from the first on at each call


def format_of(path: str) -> str:
    """Return the format that a file's name asks for. Raises UsageError."""
    found = FORMATS.get(Path(path).suffix.lower())
    if found is None:
        raise UsageError(f"{path}: unknown table format", f"use {', '.join(FORMATS)}")
    return found


def chunks(analysis: Analysis, selection: Selection) -> Iterator[pd.DataFrame]:
    """Yield the selected rows in order, at most CHUNK of them and whole ranks at a time, as every output may show them."""
    builder = TableBuilder(analysis)
    parts: list[tuple[Any, Any]] = []
    size, rank = 0, -1
    for queue, mask in selection.parts(analysis):
        rows = int(mask.sum())
        if parts and queue.rank != rank and size + rows > CHUNK:
            yield _fit_to_leave(builder.rows(parts))
            parts, size = [], 0
        parts.append((queue, mask))
        size, rank = size + rows, queue.rank
    if parts:
        yield _fit_to_leave(builder.rows(parts))


def write_table(analysis: Analysis, selection: Selection, form: str, out: BinaryIO) -> int:
    """Write the selected rows to `out` as `form` (csv, jsonl, parquet or text), and return their number."""
    writers = {"csv": _csv, "jsonl": _json_lines, "parquet": _parquet, "text": _text}
    writers[form](partial(chunks, analysis, selection), out)
    return sum(int(mask.sum()) for _, mask in selection.parts(analysis))


def is_table(path: Path) -> bool:
    """Return whether a file is a table that hangscope wrote."""
    head = head_of(path, 256)
    if head.startswith(b"PAR1"):
        with path.open("rb") as stream:
            stream.seek(max(0, path.stat().st_size - 65_536))
            return SCHEMA in stream.read()
    first = head.split(b"\n")[0].replace(b",", b" ").decode(errors="replace")
    return tuple(first.split()) == COLUMNS or head.startswith(b'{"rank":')


def _fit_to_leave(table: pd.DataFrame) -> pd.DataFrame:
    """Mask secrets and control characters in every text."""
    for name in table.columns[table.dtypes == "category"]:
        shown = {text: presentable(str(text)) for text in table[name].cat.categories}
        if any(text != new for text, new in shown.items()):
            table[name] = table[name].astype(object).map(shown).astype("category")
    return table


def _csv(frames: _Frames, out: BinaryIO) -> None:
    out.write((",".join(COLUMNS) + "\n").encode())
    for frame in frames():
        out.write(frame.to_csv(index=False, header=False, lineterminator="\n").encode())


def _json_lines(frames: _Frames, out: BinaryIO) -> None:
    for frame in frames():
        frame["created"] = frame["created"].astype("string")
        out.write(frame.to_json(orient="records", lines=True, force_ascii=False).encode())


def _parquet(frames: _Frames, out: BinaryIO) -> None:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        hint = "pip install 'hangscope[parquet]', or write .csv or .jsonl"
        raise UsageError("Parquet needs pyarrow", hint) from None
    types = dict.fromkeys(("rank", "gid", "src", "dst", "line"), pa.int32())
    types |= dict.fromkeys(("seq", "order", "created"), pa.int64()) | {"is_p2p": pa.bool_()}
    text = pa.dictionary(pa.int32(), pa.string())
    schema = pa.schema([(name, types.get(name, text)) for name in COLUMNS]).with_metadata({b"format": SCHEMA})
    with pq.ParquetWriter(out, schema, compression="zstd") as writer:
        for frame in frames():
            plain = frame.assign(**{n: frame[n].astype(object) for n in COLUMNS if n not in types})
            writer.write_table(pa.Table.from_pandas(plain, schema=schema, preserve_index=False))


def _text(frames: _Frames, out: BinaryIO) -> None:
    """Write columns of one width throughout: they are measured first, then written."""
    widths = {name: len(name) for name in COLUMNS}
    for frame in frames():
        widths = {name: max(width, _width(frame[name])) for name, width in widths.items()}

    def write(rows: Iterable[Sequence[str]]) -> None:
        out.write("".join("  ".join(row).rstrip() + "\n" for row in rows).encode())

    write([[name.ljust(width) for name, width in widths.items()]])
    for frame in frames():
        write(zip(*(_aligned(frame[name], width) for name, width in widths.items()), strict=True))


def _width(column: pd.Series) -> int:
    if column.dtype == "category":
        return max((len(str(text)) for text in column.cat.categories), default=0)
    known = column.dropna()
    return max((len(str(value)) for value in (known.min(), known.max())), default=0) if len(known) else 0


def _aligned(column: pd.Series, width: int) -> list[str]:
    """Return the cells of a column: numbers to the right, text to the left, missing ones empty."""
    if column.dtype == "category":
        cells = [str(text).ljust(width) for text in column.cat.categories]
        return [cells[code] if code >= 0 else " " * width for code in column.cat.codes]
    values = zip(column.tolist(), column.isna(), strict=True)
    return [("" if missing else str(value)).rjust(width) for value, missing in values]
