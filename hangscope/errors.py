"""What can go wrong, as data: errors that end an analysis, and notes that do not."""

from __future__ import annotations

from hangscope.model.dataclass import dataclass


class HangscopeError(Exception):
    """The analysis cannot be done at all. `hint` says what to try next; the command ends with `exit_code`."""

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(HangscopeError):
    """The call itself is wrong: an unknown option value, a path that does not exist."""

    exit_code = 2


class NoSuchPathError(UsageError):
    """A path or URL that does not exist, which a command reports like one without any input."""

    exit_code = 3


class NoInputError(HangscopeError):
    """Nothing in the given paths could be used as evidence."""

    exit_code = 3


@dataclass(frozen=True, slots=True)
class Note:
    """One thing that could not be read or does not fit; the analysis goes on without it.

    `code` is stable and machine-readable (`truncated`, `hostile`, `stale`, `two_files_one_rank`, ...);
    `file` is relative to the analysed path; `line` counts from 1.
    """

    code: str
    message: str
    file: str | None = None
    line: int | None = None
    hint: str = ""

    def __str__(self) -> str:
        line = f":{self.line}" if self.line else ""
        where = f"{self.file}{line}: " if self.file else ""
        return f"{where}{self.message}" + (f" ({self.hint})" if self.hint else "")
