"""Read one file: recognise it, parse it, and hand back plain builtins.

This is what runs in a child process, or on any executor. It imports no pandas and no numpy, so a child starts quickly,
and its answer is of builtins only, so the other side needs to look up no global to load it.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from importlib import import_module
from io import BytesIO
from typing import BinaryIO, cast

from hangscope.ingest.files import sniff
from hangscope.ingest.files.opening import CompressionUnavailable, open_plain, read_whole
from hangscope.ingest.files.remote import local_copy
from hangscope.ingest.lines.pasted import without_margin
from hangscope.ingest.recorder import flight_recorder, safe_pickle
from hangscope.ingest.recorder.fast.templates import Templates
from hangscope.ingest.recorder.recording import Recording
from hangscope.ingest.workers.answer import Part, Wire, answer, failed
from hangscope.model.regex import regex

DEFAULT_MAX_BYTES = 2 * 2**30
_CUT = "the process died while writing it, or the copy was cut"
CHECKED_TOGETHER = 32  # files of a pack, of which what they have in common is kept while they are checked
#: keys of a dump: where the first bytes hold one, a file that is not whole is a dump that was cut, and no log
_DUMP_SIGN = regex(rb'"(?:entries|pg_config|pg_status)"\s*:')
_RAS_SIGN = regex(rb'"(?:communicators_count|nccl_version)"\s*:|"event"\s*:\s*"PEER_')
#: what Ray Train's hang detector writes in place of a dump (ray/train/v2/_internal/callbacks/nccl_ras.py)
_RAYS_EXCUSE = "ray_train_dump_error"


def read_file(
    path: str,
    shown: str,
    max_bytes: int = DEFAULT_MAX_BYTES,
    known: Templates | None = None,
    hand_over: Callable[[Part], None] | None = None,
    completions: bool = False,
) -> Wire:
    """Return what one file says, as builtins. Never raises for what the file holds.

    `path` is where it lies, `shown` how reports name it, `max_bytes` the largest dump that is loaded (logs are streamed
    and have no limit), `known` what is known of the dumps that this process read before. `hand_over` takes the files in a
    pack one by one; without it they are in the answer, under `files`. `completions`: also when collectives completed, which takes
    the load of every dump.
    """
    kind = "unreadable"
    try:
        with local_copy(path) as local, open_plain(local) as plain:
            stream = without_margin(plain, _peek(plain))
            kind = sniff.sniff(_peek(stream))
            if kind in _STREAMED:
                return _STREAMED[kind](stream, shown)
            if kind == "pack":
                return _read_pack(stream, shown, hand_over)
            data = read_whole(stream, max_bytes)
            return _read_whole(kind, data, max_bytes, shown, known or Templates(), completions)
    except CompressionUnavailable as error:
        return failed("compressed", "compressed", str(error))
    except MemoryError:
        what = "asks for more memory than one file may take and was not loaded"
        hint = "a healthy dump needs a few MB; this one is corrupt or hostile"
        return failed("dump", "too_much_memory", what, hint)
    except (OSError, EOFError) as error:
        return failed("dump" if kind == "pickle" else "unreadable", "unreadable", f"cannot be read: {error}")
    except Exception as error:  # a parser's own mistake may cost this file and no other
        what = f"could not be parsed: {type(error).__name__}: {error}"[:300]
        return failed("unreadable", "parser_failed", what, "please report this with the file")


def _read_whole(
    kind: str, data: bytes, max_bytes: int, shown: str, known: Templates, completions: bool
) -> Wire:
    if len(data) > max_bytes:
        what = f"is larger than the limit of {max_bytes:,} bytes and was not loaded"
        return failed(kind, "too_large", what, "raise --max-bytes if it is a dump")
    if kind != "pickle":
        return _read_json(data, shown, completions)
    enabled = gc.isenabled()
    gc.disable()  # a dump is millions of small containers without a cycle
    try:
        return _read_pickle(data, known, completions)
    finally:
        if enabled:
            gc.enable()


def _peek(stream: BinaryIO) -> bytes:
    head = stream.read(sniff.HEAD_BYTES)
    stream.seek(0)
    return head


def _read_pickle(data: bytes, known: Templates, completions: bool) -> Wire:
    recording = known.read(data) if not completions else None
    if recording is not None:
        return _recorded(recording)
    try:
        value = safe_pickle.load(data)
    except safe_pickle.HostilePickle as error:
        what = f"refused: this pickle asks to import `{error.wanted}`, which no Flight Recorder dump does"
        return failed("hostile", "hostile", what, "do not open it with pickle.load; ask where it came from")
    except MemoryError:
        raise
    except Exception as error:  # any byte sequence can make the pickle module raise anything
        if isinstance(error, EOFError) or "truncated" in str(error):
            return failed("dump", "truncated", "is truncated: the pickle ends before its end", _CUT)
        what = f"is no whole pickle: {type(error).__name__}: {error}"[:300]
        return failed("dump", "corrupt", what, "the process died while writing it, or it is another format")
    if not flight_recorder.looks_like_dump(value):
        return answer("pickle", "ignored", "a pickle file that is no Flight Recorder dump")
    return _recorded(flight_recorder.reduce_dump(value, completions=completions))


def _recorded(recording: Recording) -> Wire:
    recorded = answer("flight_recorder")
    recorded["recordings"] = [recording.to_wire()]
    return recorded


def _read_pack(stream: BinaryIO, shown: str, hand_over: Callable[[Part], None] | None) -> Wire:
    from hangscope.ingest.recorder import pack_file
    from hangscope.ingest.recorder.members import Interner
    from hangscope.ingest.workers.wire_check import BadAnswer, check_wire

    pack = answer("pack")
    pack["files"] = []
    hand_over = hand_over or pack["files"].append
    try:
        for number, (name, size, wire) in enumerate(pack_file.read_pack(stream)):
            if number % CHECKED_TOGETHER == 0:
                interner = Interner()
            try:
                check_wire(name, wire, interner)
            except BadAnswer as error:
                wire = failed("unreadable", "bad_pack", f"cannot be used from {shown}: {error}")
            hand_over((str(name), size, wire))
    except MemoryError:
        raise
    except Exception as error:  # a forged answer may raise anything
        what = f"is no whole pack: {type(error).__name__}: {error}"[:300]
        return failed("pack", "corrupt", what, "it was cut while it was copied, or another version wrote it")
    return pack


def _read_json(data: bytes, shown: str, completions: bool) -> Wire:
    from hangscope.ingest.stacks.threads import looks_like_spy_json
    from hangscope.ingest.workers import reading

    head = data[: sniff.HEAD_BYTES]
    if looks_like_spy_json(head):
        return reading.read_stacks(BytesIO(data), shown)
    dump = bool(_DUMP_SIGN.search(head))
    if not dump and _RAS_SIGN.search(data):
        return reading.read_ras(BytesIO(data), shown)
    try:
        value = json.loads(data)
    except RecursionError:
        return failed("json", "hostile", "is nested too deeply to be a dump")
    except ValueError as error:
        log = None if dump else reading.read_log(BytesIO(data), shown)
        if log is not None and log.shows_a_job:
            return reading.of_log(log)  # a log whose first lines only look like JSON
        return failed("dump" if dump else "json", "corrupt", f"is no whole JSON: {error}"[:300], _CUT)
    if flight_recorder.looks_like_dump(value):
        return _recorded(flight_recorder.reduce_dump(value, completions=completions))
    if isinstance(value, dict) and isinstance(value.get(_RAYS_EXCUSE), str):
        why = f"holds no dump: {value[_RAYS_EXCUSE]}"[:300]
        return failed("dump", "no_dump", why, "Ray Train's hang detector got none from this rank")
    log = reading.read_log(BytesIO(data), shown)  # a record of a job's end may quote its last lines
    if log.shows_a_job:
        return reading.of_log(log)
    return answer("json", "ignored", "a JSON file of no kind that is known here")


def _text(name: str) -> Reader:
    """Return a reader of text; its module is loaded with the first file that needs it."""
    module = "hangscope.ingest.workers.reading"
    return lambda stream, shown: cast(Wire, getattr(import_module(module), name)(stream, shown))


def _ignore(kind: str, reason: str) -> Reader:
    return lambda stream, shown: answer(kind, "ignored", reason)


Reader = Callable[[BinaryIO, str], Wire]
_STREAMED: dict[str, Reader] = {
    "log": _text("read_logs"),
    "stacks": _text("read_stacks"),
    "ras_text": _text("read_ras"),
    "inspector": _text("read_inspector"),
    "empty": _ignore("empty", "is empty"),
    "report": _ignore("report", "a report of hangscope itself"),
    "binary": _ignore("binary", "binary data of no kind that is known here"),
}
