"""Ways to damage an incident: by structure, by bytes, by lines, and as a folder of files."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import random
import re
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hangscope.ingest.recorder import safe_pickle

NUMBERS = (
    0, 1, -1, 2, 7, 255, 2**15, 2**18 - 1, 2**18, 2**31 - 1, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**64, -(2**63), 10**30,
    float("nan"), float("inf"), 1e308, True,
)  # fmt: skip
TEXTS = (
    "", " ", "0", "-1", "default_pg", "nccl:all_reduce", "gloo:barrier", "nccl:send 0->1", "nccl:recv 1<-0", "completed", "started",
    "scheduled", "\x00", "\x1b[31mred\x1b[0m", "</script><script>alert(1)</script>", "{{7*7}}", "%s%n", "../../etc/passwd", "\u202eabc",
    "\u200b", "A" * 5000, "[" + ", ".join(map(str, range(3000))) + "]", "[0, 262143]", "[-1, 0, 0, 0]", "9" * 400, "nan", "@everyone",
    "| a | b |", "```", "token -1-1-1-1", "\ud800",
)  # fmt: skip


def flip(data: bytes, chance: random.Random, donor: bytes) -> bytes:
    """Change some bits."""
    out = bytearray(data)
    for _ in range(chance.choice((1, 1, 4, 40))):
        out[chance.randrange(len(out))] ^= 1 << chance.randrange(8)
    return bytes(out)


def cut(data: bytes, chance: random.Random, donor: bytes) -> bytes:
    """Keep the beginning or the end alone."""
    at = chance.randrange(len(data))
    return data[:at] if chance.random() < 0.7 else data[at:]


def remove(data: bytes, chance: random.Random, donor: bytes) -> bytes:
    """Leave out a piece."""
    start, end = sorted(chance.randrange(len(data) + 1) for _ in range(2))
    end = min(end, start + chance.choice((1, 16, 512, 1 << 20)))
    return data[:start] + data[end:]


def repeat(data: bytes, chance: random.Random, donor: bytes) -> bytes:
    """Repeat a piece."""
    start = chance.randrange(len(data))
    piece = data[start : start + chance.choice((1, 16, 512, 4096))]
    return data[:start] + piece * chance.choice((2, 10, 200)) + data[start:]


def zero(data: bytes, chance: random.Random, donor: bytes) -> bytes:
    """Write zeros over a block, as a crashed file system does."""
    start = chance.randrange(len(data))
    size = chance.choice((1, 64, 4096))
    return data[:start] + bytes(min(size, len(data) - start)) + data[start + size :]


def splice(data: bytes, chance: random.Random, donor: bytes) -> bytes:
    """Go on with another file from somewhere."""
    return data[: chance.randrange(len(data))] + donor[chance.randrange(len(donor) or 1) :]


def noise(data: bytes, chance: random.Random, donor: bytes) -> bytes:
    """Insert random bytes."""
    at = chance.randrange(len(data))
    return data[:at] + chance.randbytes(chance.choice((1, 8, 200))) + data[at:]


BYTES = (flip, cut, remove, repeat, zero, splice, noise)


def lines(data: bytes, chance: random.Random, donor: bytes) -> bytes:
    """Change a text by lines: leave out, repeat, swap, shuffle, cut, join, renumber, or insert what is odd or another's."""
    rows = data.splitlines(keepends=True) or [b""]
    for _ in range(chance.choice((1, 1, 3, 20))):
        at = chance.randrange(len(rows))
        what = chance.randrange(11)
        if what == 0 and len(rows) > 1:
            del rows[at]
        elif what == 1:
            rows[at:at] = [rows[at][:9000]] * chance.choice((1, 5, 500))
        elif what == 2:
            other = chance.randrange(len(rows))
            rows[at], rows[other] = rows[other], rows[at]
        elif what == 3:
            piece = rows[at : at + 20]
            chance.shuffle(piece)
            rows[at : at + 20] = piece
        elif what == 4:
            rows[at] = rows[at][: chance.randrange(len(rows[at]) + 1)]
        elif what == 5:
            rows[at] = rows[at].rstrip(b"\n")
        elif what in (6, 7):
            parts = re.split(rb"(\d+)", rows[at])
            number = str(chance.choice(NUMBERS)).encode()
            rows[at] = b"".join(number if p.isdigit() and chance.random() < 0.4 else p for p in parts[:9000])
        elif what == 8:
            row, text = rows[at], chance.choice(TEXTS).encode("utf-8", "surrogatepass")
            place = chance.randrange(len(row) + 1)
            rows[at] = row[:place] + text + row[place:]
        elif what == 9:
            theirs = donor.splitlines(keepends=True) or [b""]
            start = chance.randrange(len(theirs))
            rows[at:at] = theirs[start : start + chance.choice((1, 10))]
        else:
            rows[at] = rows[at][:2000].rstrip(b"\n") * chance.choice((2, 50, 3000)) + b"\n"
    return b"".join(rows)


def structure(data: bytes, chance: random.Random, donor: bytes) -> bytes:
    """Change values of a dump: types, ids, sizes, times, keys, order, depth, cycles. Raises for what is no dump."""
    is_json = data[:1] in (b"{", b"[")
    value = json.loads(data) if is_json else safe_pickle.load(data)
    for _ in range(chance.choice((1, 1, 2, 8))):
        _change(value, chance)
    if is_json:
        try:
            return json.dumps(value).encode("utf-8", "surrogatepass")
        except (ValueError, RecursionError):
            return data
    try:
        return pickle.dumps(value, protocol=chance.choice((2, 4)))
    except (RecursionError, UnicodeError):
        return data


def _change(value: Any, chance: random.Random) -> None:
    """Change one place in a value of dicts and lists."""
    holder, key = value, None
    for _ in range(chance.randrange(1, 9)):
        inner = holder if key is None else holder[key]
        if not isinstance(inner, (dict, list)) or not inner:
            break
        holder = inner
        key = chance.choice(list(holder)) if isinstance(holder, dict) else chance.randrange(len(holder))
    if key is None:
        return
    old = holder[key]
    what = chance.randrange(13)
    if what < 3 or isinstance(old, (int, float)):
        near = old + chance.choice((-1, 1, 2)) if isinstance(old, int) else 3
        holder[key] = near if chance.random() < 0.4 else chance.choice(NUMBERS)
    elif what < 5:
        holder[key] = chance.choice(TEXTS)
    elif what == 5:
        del holder[key]
    elif what == 6:
        holder[key] = chance.choice((None, [], {}, [[]], {"a": {}}, b"", (1, (2,)), [None] * 100))
    elif what == 7 and isinstance(old, list):
        chance.shuffle(old)
    elif what == 8 and isinstance(old, list) and old:
        old[:] = old[: chance.randrange(len(old))] + [chance.choice(old)] * chance.choice((1, 2000))
    elif what == 9:
        deep: Any = old
        for _ in range(chance.choice((5, 300))):
            deep = [deep]
        holder[key] = deep
    elif what == 10:
        holder[key] = holder  # a cycle
    elif what == 11 and isinstance(old, list) and len(old) > 1:
        del old[chance.randrange(len(old)) :]
    elif isinstance(holder, dict):
        holder[chance.choice((*map(str, holder), "extra", 7))] = old


def files(folder: Path, chance: random.Random) -> None:
    """Change which files there are: lost, doubled, renamed, packed, empty, swapped, linked in a circle."""
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    if not found:
        return
    path, other = chance.choice(found), chance.choice(found)
    what = chance.randrange(9)
    if what == 0:
        path.unlink()
    elif what == 1:
        shutil.copy(
            path, path.with_name(path.name + chance.choice((".old", ".1", "_7", ".gz", ".tar", ".zip")))
        )
    elif what == 2:
        target = path.with_name(re.sub(r"\d+", str(chance.choice((0, 1, 3, 9999, 262143, 10**9))), path.name))
        path.rename(target)
    elif what == 3:
        packed = path.read_bytes()
        path.unlink()
        path.with_name(path.name + ".gz").write_bytes(
            BYTES[chance.randrange(7)](gzip.compress(packed), chance, packed)
        )
    elif what == 4:
        path.write_bytes(b"")
    elif what == 5:
        one, two = path.read_bytes(), other.read_bytes()
        path.write_bytes(two)
        other.write_bytes(one)
    elif what == 6:
        (path.parent / "loop").symlink_to(
            chance.choice((folder, path.parent, Path("loop"), Path("/nowhere")))
        )
    elif what == 7:
        packed_to = folder.parent / "packed.tar.gz"
        with tarfile.open(packed_to, "w:gz") as tar:
            tar.add(folder, "job")
        shutil.rmtree(folder)
        folder.mkdir()
        data = packed_to.read_bytes()
        packed_to.unlink()
        mutated = data if chance.random() < 0.3 else BYTES[chance.randrange(7)](data, chance, data)
        (folder / "packed.tar.gz").write_bytes(mutated)
    else:
        os.mkfifo(path.with_name("pipe"))


def lies(folder: Path, chance: random.Random) -> None:
    """Make one rank's files say something consistent that is not so: counters, copies, swaps, gaps, clocks, lines."""
    found = sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
    dumps = [path for path in found if path.read_bytes()[:1] in (b"\x80", b"{")]
    texts = [path for path in found if path not in dumps]
    if len(dumps) > 1 and (not texts or chance.random() < 0.7):
        path, other = chance.sample(dumps, 2)
        what = chance.randrange(5)
        if what == 0:
            path.write_bytes(other.read_bytes())
        elif what == 1:
            one, two = path.read_bytes(), other.read_bytes()
            path.write_bytes(two)
            other.write_bytes(one)
        else:
            path.write_bytes(_lying(path.read_bytes(), what, chance))
    elif texts:
        path = chance.choice(texts)
        path.write_bytes(_lying_lines(path.read_bytes(), chance))


def _lying(data: bytes, what: int, chance: random.Random) -> bytes:
    """Shift the sequence numbers of a dump (2), leave out an entry (3), or set its clock wrong (4)."""
    is_json = data[:1] == b"{"
    value = json.loads(data) if is_json else safe_pickle.load(data)
    entries = value.get("entries") if isinstance(value, dict) else None
    if not entries:
        return data
    if what == 3 and len(entries) > 2:
        del entries[chance.randrange(1, len(entries) - 1)]
    shift, clock = chance.choice((-1, 1)), chance.choice((-3600, 3600, 86400)) * 10**9
    for entry in entries:
        if what == 2 and isinstance(entry.get("collective_seq_id"), int):
            entry["collective_seq_id"] += shift
        if what == 4 and isinstance(entry.get("time_created_ns"), int):
            entry["time_created_ns"] += clock
    return json.dumps(value).encode() if is_json else pickle.dumps(value, protocol=4)


def _lying_lines(data: bytes, chance: random.Random) -> bytes:
    """Glue two lines together, repeat some, or put them in another order."""
    rows = data.splitlines(keepends=True)
    at, size = chance.randrange(len(rows)), chance.choice((1, 3, 10))
    what = chance.randrange(3)
    if what == 0:
        rows[at] = rows[at].rstrip(b"\r\n")
    elif what == 1:
        rows[at:at] = rows[at : at + size]
    else:
        piece = rows[at : at + size]
        rows[at : at + size] = []
        place = chance.randrange(len(rows) + 1)
        rows[place:place] = piece
    return b"".join(rows)


#: By name; each takes a file's bytes, a source of chance and another file's bytes.
OF_A_FILE: dict[str, tuple[Callable[[bytes, random.Random, bytes], bytes], ...]] = {
    "bytes": BYTES,
    "lines": (lines,),
    "structure": (structure,),
}
