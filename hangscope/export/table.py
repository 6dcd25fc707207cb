"""The collective-sequence table as a file: CSV, JSON lines, Parquet or aligned text, written some ranks at a time.

The columns are those of `hangscope.export.frame`. Times are text in JSON lines, because many readers lose integers above 2^53.
Memory follows the calls of the job as they are held for the analysis, and not the rows that are written.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from hangscope.analysis import Analysis
from hangscope.errors import UsageError
from hangscope.export.frame import COLUMNS, TableBuilder
from hangscope.export.selection import Selection
from hangscope.report.masking.secrets import presentable

if TYPE_CHECKING:
    import pandas as pd

CHUNK = 65_536  # rows that are built at a time, or those of one queue where it holds more
FORMATS = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet", ".txt": "text"}
SCHEMA = b"hangscope.table/1"


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


def write_table(analysis: Analysis | None, selection: Selection, form: str, out: BinaryIO) -> int:
    """Write the selected rows to `out` as `form` (csv, jsonl, parquet or text), and return their number."""
    writers: dict[str, Callable[[Callable[[], Iterable[pd.DataFrame]], BinaryIO], int]] = {
        "csv": _csv, "jsonl": _json_lines, "parquet": _parquet, "text": _text,
    }  # fmt: skip
    return writers[form](lambda: chunks(analysis, selection) if analysis is not None else iter(()), out)


def is_table(path: Path) -> bool:
    """Return whether a file is a table that hangscope wrote."""
    try:
        with path.open("rb") as stream:
            head = stream.read(256)
            stream.seek(max(0, path.stat().st_size - 65_536))
            tail = stream.read()
    except OSError:
        return False
    if head.startswith(b"PAR1"):
        return SCHEMA in tail
    first = head.split(b"\n")[0].replace(b",", b" ").decode(errors="replace")
    return tuple(first.split()) == COLUMNS or head.startswith(b'{"rank":')


def _fit_to_leave(table: pd.DataFrame) -> pd.DataFrame:
    """Mask secrets and control characters in every text."""
    for name in table.columns[table.dtypes == "category"]:
        shown = {text: presentable(str(text)) for text in table[name].cat.categories}
        if any(text != new for text, new in shown.items()):
            table[name] = table[name].astype(object).map(shown).astype("category")
    return table


def _csv(frames: Callable[[], Iterable[pd.DataFrame]], out: BinaryIO) -> int:
    rows = 0
    out.write((",".join(COLUMNS) + "\n").encode())
    for frame in frames():
        out.write(frame.to_csv(index=False, header=False, lineterminator="\n").encode())
        rows += len(frame)
    return rows


def _json_lines(frames: Callable[[], Iterable[pd.DataFrame]], out: BinaryIO) -> int:
    rows = 0
    for frame in frames():
        frame["created"] = frame["created"].astype("string")
        out.write(frame.to_json(orient="records", lines=True, force_ascii=False).encode())
        rows += len(frame)
    return rows


def _parquet(frames: Callable[[], Iterable[pd.DataFrame]], out: BinaryIO) -> int:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise UsageError(
            "Parquet needs pyarrow", "pip install 'hangscope[parquet]', or write .csv or .jsonl"
        ) from None
    text = pa.dictionary(pa.int32(), pa.string())
    types = {
        "rank": pa.int32(),
        "gid": pa.int32(),
        "seq": pa.int64(),
        "order": pa.int64(),
        "is_p2p": pa.bool_(),
    }
    types |= dict.fromkeys(("src", "dst", "line"), pa.int32()) | {"created": pa.int64()}
    schema = pa.schema([(name, types.get(name, text)) for name in COLUMNS]).with_metadata({b"format": SCHEMA})
    rows = 0
    with pq.ParquetWriter(out, schema, compression="zstd") as writer:
        for frame in frames():
            names = [name for name in COLUMNS if name not in types]
            plain = frame.assign(**{name: frame[name].astype(object) for name in names})
            writer.write_table(pa.Table.from_pandas(plain, schema=schema, preserve_index=False))
            rows += len(frame)
    return rows


def _text(frames: Callable[[], Iterable[pd.DataFrame]], out: BinaryIO) -> int:
    """Write columns of one width throughout: they are measured first, then written."""
    widths = {name: len(name) for name in COLUMNS}
    for frame in frames():
        for name in COLUMNS:
            widths[name] = max(widths[name], _width(frame[name]))
    line = io.StringIO()
    line.write("  ".join(name.ljust(widths[name]) for name in COLUMNS).rstrip() + "\n")
    rows = 0
    for frame in frames():
        cells = [_aligned(frame[name], widths[name]) for name in COLUMNS]
        line.writelines("  ".join(row).rstrip() + "\n" for row in zip(*cells, strict=True))
        rows += len(frame)
        out.write(line.getvalue().encode())
        line = io.StringIO()
    out.write(line.getvalue().encode())
    return rows


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
    return [("" if value is None else str(value)).rjust(width) for value in _values(column)]


def _values(column: pd.Series) -> list[Any]:
    return [None if missing else value for value, missing in zip(column.tolist(), column.isna(), strict=True)]
