"""The collective-sequence table as a file: CSV, JSON lines, Parquet or aligned text, written some ranks at a time.

The columns are those of `hangscope.export.frame`. Times are text in JSON lines, because many readers lose integers above 2^53.
Memory follows the calls of the job as they are held for the analysis, and not the rows that are written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from hangscope.analysis import Analysis
from hangscope.errors import UsageError
from hangscope.export.frame import COLUMNS, TableBuilder
from hangscope.export.output import head_of
from hangscope.export.selection import Selection
from hangscope.report.masking.secrets import presentable

if TYPE_CHECKING:
    import pandas as pd

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


def chunks(analysis: Analysis | None, selection: Selection) -> Iterator[pd.DataFrame]:
    """Yield the selected rows in order, at most CHUNK of them and whole ranks at a time, as every output may show them."""
    builder = TableBuilder(analysis)
    parts: list[tuple[Any, Any]] = []
    size, rank = 0, -1
    for queue, mask in selection.parts(analysis) if analysis is not None else ():
        rows = int(mask.sum())
        if parts and queue.rank != rank and size + rows > CHUNK:
            yield _fit_to_leave(builder.rows(parts))
            parts, size = [], 0
        parts.append((queue, mask))
        size, rank = size + rows, queue.rank
    if parts:
        yield _fit_to_leave(builder.rows(parts))


def write_table(analysis: Analysis | None, selection: Selection, form: str, out: BinaryIO) -> int:
    """Write the selected rows to `out` as `form` (csv, jsonl, parquet or text), and return their number."""
    writers = {"csv": _csv, "jsonl": _json_lines, "parquet": _parquet, "text": _text}
    writers[form](partial(chunks, analysis, selection), out)
    return sum(int(mask.sum()) for _, mask in selection.parts(analysis)) if analysis is not None else 0


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
