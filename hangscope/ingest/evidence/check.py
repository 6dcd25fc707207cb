"""Whether an event that comes from a file has the form that this project's own parsers give it.

The rules read an event's fields as the vocabulary of `docs/events.md` says they are. What is not in the table here is read
by no rule, and need only be plain and short.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from hangscope.incident import Event

MAX_NUMBER = 2**63
MAX_RANK = 10**7  # no larger one is read from a line
MAX_TEXT = 100_000
MAX_ITEMS = 2**18
MAX_FIELDS = 64

Check = Callable[[Any], bool]


def is_number(value: Any) -> bool:
    """Return whether a value is a whole number of 64 bits."""
    return type(value) is int and -MAX_NUMBER <= value < MAX_NUMBER


def is_rank(value: Any) -> bool:
    """Return whether a value is a rank or None."""
    return value is None or (type(value) is int and 0 <= value < MAX_RANK)


def is_text(value: Any) -> bool:
    """Return whether a value is text, and not without end."""
    return isinstance(value, str) and len(value) <= MAX_TEXT


def optional(check: Check) -> Check:
    """Return a check that lets None pass as well."""
    return lambda value: value is None or check(value)


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _amount(value: Any) -> bool:
    return is_number(value) or (isinstance(value, float) and abs(value) < MAX_NUMBER)


def _number_or_text(value: Any) -> bool:
    return is_number(value) or is_text(value)


def _list_of(check: Check) -> Check:
    return lambda value: (
        isinstance(value, (list, tuple)) and len(value) <= MAX_ITEMS and all(map(check, value))
    )


def _frame(value: Any) -> bool:
    return (
        isinstance(value, (list, tuple))
        and len(value) == 3
        and is_text(value[0])
        and is_text(value[1])
        and is_number(value[2])
    )


def _raised(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and len(value) == 2 and all(map(is_text, value))


def _by_number(check: Check) -> Check:
    return lambda value: (
        isinstance(value, dict)
        and len(value) <= MAX_ITEMS
        and all(is_number(key) and check(item) for key, item in value.items())
    )


def _plain(value: Any) -> bool:
    return (
        value is None or _flag(value) or _amount(value) or is_text(value) or _list_of(_number_or_text)(value)
    )


def _named(check: Check, names: str) -> dict[str, Check]:
    return dict.fromkeys(names.split(), check)


_FIELDS: dict[str, Check] = {
    **_named(
        is_number,
        "agent code color comm_rank count cuda_dev epoch expected from_group_rank index joined last_completed last_enqueued "
        "local_rank nranks numel_in numel_out peer_rank pid port ran_ms rank_a received requested seq "
        "sequence_number split step target_pid task tier timeout_ms vendor victim_pid waited_rank worker_pid "
        "world_size",
    ),
    "peer_group_rank": is_rank,
    **_named(
        is_text,
        "blames bus_id class comm comm_id context device dtype error group_desc group_name host key message nic op parent "
        "peer_host peer_node peer_op phase reason signal type via what",
    ),
    **_named(_number_or_text, "detector peer pg_id result snapshot status"),
    **_named(_amount, "seconds stamp"),
    **_named(_flag, "done first garbled implausible leaving symptom truncated"),
    **_named(_list_of(is_number), "absent indices never_joined peer_shape shape sizes"),
    **_named(_list_of(is_text), "aspects names"),
    **_named(_list_of(_frame), "frames last_frames"),
    "chain": _list_of(_raised),
    **_named(_by_number(_list_of(is_number)), "joined_not_finished not_joined"),
    "counts": _by_number(is_number),
}
#: fields that mean something else in events of one kind
_OWN: dict[tuple[str, str], Check] = {("exception", "code"): is_text}
#: fields without which an event of a kind says nothing
_NEEDED: dict[str, Collection[str]] = {
    "exit": ("code",),
    "exception": ("type", "message"),
    "gloo_size_mismatch": ("received", "expected"),
    "monitored_barrier": ("absent",),
    "no_progress": ("seconds",),
    "failed_stack": ("frames",),
    "ddp_params": ("counts",),
}


def problem_of(event: Event) -> str:
    """Return what of an event is not of the form that a parser gives it; empty for a proper one."""
    if not (is_text(event.kind) and is_text(event.file) and is_text(event.text)):
        return "an event's text"
    if not (is_number(event.line) and is_rank(event.rank) and is_rank(event.group_rank)):
        return "an event's numbers"
    if not (optional(is_number)(event.pid) and optional(is_number)(event.attempt)):
        return "an event's process or attempt"
    if not (optional(is_text)(event.host) and optional(_amount)(event.time)):
        return "an event's host or time"
    fields: Any = event.fields
    if not isinstance(fields, dict) or len(fields) > MAX_FIELDS or not all(map(is_text, fields)):
        return "an event's fields"
    for name, value in fields.items():
        check = _OWN.get((event.kind, name)) or _FIELDS.get(name, _plain)
        if value is not None and not check(value):
            return f"the field {name[:40]} of an event {event.kind[:40]}"
    lacking = [name for name in _NEEDED.get(event.kind, ()) if fields.get(name) is None]
    return f"the field {lacking[0]} of an event {event.kind[:40]}" if lacking else ""
