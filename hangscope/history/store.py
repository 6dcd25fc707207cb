"""Where incidents are kept: one SQLite file (WAL, several writers on one machine), or PostgreSQL by URL for a cluster.

SQLite comes with Python. PostgreSQL goes through SQLAlchemy (`pip install 'hangscope[history]'`). Both get the same statements;
whatever goes wrong with either is a StoreError that says what to do.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, fields
from typing import Any

from hangscope.errors import HangscopeError
from hangscope.history.entry import NAMES, Entry, Use
from hangscope.model.regex import regex
from hangscope.report.masking.secrets import presentable

Rows = Sequence[Sequence[Any]]
#: Runs a statement with named parameters (`:name`) and returns its rows.
Run = Callable[[str, dict[str, Any]], Rows]

VERSION = 1
_EMPTY = "`hangscope analyze PATH --store FILE` begins one"
WAIT = 10.0  # seconds for another writer, or for a server that does not answer
_LEAST = 1 << 16  # free bytes that SQLite needs for its log
_SCHEME = regex(r"([a-z][a-z0-9+]{1,30})://", 0)
_FULL = "the disk is full: free some space"
#: What SQLite says, and what it means; of several the last.
_SIGNS = {
    "full": _FULL,
    **dict.fromkeys(("not a database", "malformed"), "give another file; this one is not a store, or it is damaged"),
    **dict.fromkeys(("unable to open", "readonly", "read-only"), "check the folder and its permissions"),
    **dict.fromkeys(("locked", "busy"), f"another process has kept it for more than {WAIT:.0f} seconds"),
}  # fmt: skip
_TYPES = {"str": "TEXT", "int": "BIGINT", "float": "DOUBLE PRECISION"}
_KEPT = ("id", "recorded", "note", "analyses", "report")  # of an incident that is analyzed again

_TABLES = (
    "CREATE TABLE IF NOT EXISTS hangscope_meta (name TEXT PRIMARY KEY, value BIGINT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS hangscope_incidents ("
    + ", ".join(f"{f.name} {_TYPES[str(f.type)]} NOT NULL" for f in fields(Entry))
    + ", PRIMARY KEY (id))",
    "CREATE TABLE IF NOT EXISTS hangscope_uses (incident TEXT NOT NULL, "
    + ", ".join(f"{f.name} {_TYPES[str(f.type)]} NOT NULL" for f in fields(Use))
    + ", PRIMARY KEY (incident, host))",
    "CREATE INDEX IF NOT EXISTS hangscope_uses_by_host ON hangscope_uses (host, gpus, fault, fault_gpus)",
    f"INSERT INTO hangscope_meta (name, value) VALUES ('version', {VERSION}) ON CONFLICT (name) DO NOTHING",
)
_ADD = (
    f"INSERT INTO hangscope_incidents ({', '.join(NAMES)}) VALUES ({', '.join(f':{n}' for n in NAMES)}) ON CONFLICT (id) DO UPDATE SET "
    + ", ".join(f"{n} = excluded.{n}" for n in NAMES if n not in _KEPT)
    + ", report = CASE WHEN excluded.report = '' THEN hangscope_incidents.report ELSE excluded.report END"
    + ", analyses = hangscope_incidents.analyses + 1"
)
_USE = "INSERT INTO hangscope_uses VALUES (:incident, " + ", ".join(f":{f.name}" for f in fields(Use)) + ")"


class StoreError(HangscopeError):
    """The store cannot be used."""


class Store:
    """An open store. Every method raises StoreError where the database cannot do it."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def add(self, entry: Entry, uses: Iterable[Use]) -> None:
        """Add an incident, or renew what is known of it; its note stays."""
        self._run(_ADD, asdict(entry))
        self._run("DELETE FROM hangscope_uses WHERE incident = :id", {"id": entry.id})
        for use in uses:
            self._run(_USE, {"incident": entry.id, **asdict(use)})

    def entries(self) -> list[Entry]:
        """Return the incidents, the latest first."""
        order = "ORDER BY CASE WHEN happened > 0 THEN happened ELSE recorded END DESC, id"
        found = self._run(f"SELECT {', '.join(NAMES)} FROM hangscope_incidents {order}", {})
        return [Entry(*row) for row in found]

    def entry(self, prefix: str) -> Entry:
        """Return the incident whose id begins so. Raises StoreError where there is none, or several."""
        statement = f"SELECT {', '.join(NAMES)} FROM hangscope_incidents WHERE substr(id, 1, :n) = :prefix ORDER BY id"
        found = self._run(statement, {"n": len(prefix), "prefix": prefix})
        if len(found) != 1:
            what = "no incident has" if not found else f"{len(found)} incidents have"
            hint = "`hangscope history list` shows the ids"
            raise StoreError(f"{what} an id that begins with {prefix[:40]!r}", hint)
        return Entry(*found[0])

    def annotate(self, prefix: str, text: str) -> Entry:
        """Leave a note at an incident, and return it."""
        entry = self.entry(prefix)
        statement = "UPDATE hangscope_incidents SET note = :note WHERE id = :id"
        self._run(statement, {"note": text, "id": entry.id})
        return entry

    def uses(self, incident: str) -> list[Use]:
        """Return the hosts of an incident."""
        names = ", ".join(f.name for f in fields(Use))
        statement = f"SELECT {names} FROM hangscope_uses WHERE incident = :id ORDER BY host"
        return [Use(*row) for row in self._run(statement, {"id": incident})]

    def use_counts(self) -> Rows:
        """Return (host, GPUs, fault, GPUs at fault, number of incidents) of all that was used."""
        columns = "host, gpus, fault, fault_gpus"
        return self._run(f"SELECT {columns}, COUNT(*) FROM hangscope_uses GROUP BY {columns}", {})


@contextmanager
def open_store(place: str, *, writing: bool = True) -> Iterator[Store]:
    """Open a store for one transaction: a path or `sqlite:///path`, or a URL `postgresql://...`. Raises StoreError.

    A store that is not there yet is made for writing.
    """
    scheme = _SCHEME.match(place)
    shown = presentable(place)
    if scheme is None or scheme[1] == "sqlite":
        path = place if scheme is None else place[len("sqlite://") :].removeprefix("/")
        opened: Any = _sqlite(path, shown, writing)
    elif scheme[1].split("+")[0] in ("postgresql", "postgres"):
        opened = _postgresql(place, shown, writing)
    else:
        raise StoreError(f"{shown} is not a store", "give a file, or a URL that begins with postgresql://")
    with opened as run:
        yield Store(run)


@contextmanager
def _sqlite(path: str, shown: str, writing: bool) -> Iterator[Run]:
    if not writing and not os.path.exists(path):
        raise StoreError(f"there is no store {shown}", _EMPTY)
    try:
        with closing(sqlite3.connect(path, timeout=WAIT, isolation_level=None)) as connection:
            with suppress(sqlite3.OperationalError):  # some file systems have no WAL; the rest works without
                connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("BEGIN IMMEDIATE" if writing else "BEGIN")

            def run(statement: str, values: dict[str, Any]) -> Rows:
                return connection.execute(statement, values).fetchall()

            _prepare(run, shown, writing)
            yield run
            connection.execute("COMMIT")  # what is not committed is rolled back
    except sqlite3.Error as error:
        raise _refused(path, shown, error) from None


def _refused(path: str, shown: str, error: sqlite3.Error) -> StoreError:
    said, hint, free = str(error), "check the disk", _LEAST
    with suppress(OSError):
        free = shutil.disk_usage(os.path.dirname(os.path.abspath(path))).free
    if free < _LEAST:
        hint = _FULL
    for sign, meaning in _SIGNS.items():
        hint = meaning if sign in said else hint
    return StoreError(f"the store {shown} cannot be used: {said}", hint)


@contextmanager
def _postgresql(url: str, shown: str, writing: bool) -> Iterator[Run]:
    try:
        import sqlalchemy
    except ImportError:
        raise StoreError("a PostgreSQL store needs SQLAlchemy", "pip install 'hangscope[history]'") from None
    settings = {
        "connect_timeout": int(WAIT / 2),
        "options": f"-c lock_timeout={int(WAIT * 1000)} -c statement_timeout={int(WAIT * 3000)}",
    }
    try:
        # SQLAlchemy before 2.1 would take psycopg2 for a URL without a driver.
        address = sqlalchemy.make_url(url.replace("postgres://", "postgresql://", 1))
        if address.drivername == "postgresql":
            address = address.set(drivername="postgresql+psycopg")
        engine = sqlalchemy.create_engine(address, connect_args=settings, poolclass=sqlalchemy.NullPool)
        with engine.begin() as connection:

            def run(statement: str, values: dict[str, Any]) -> Rows:
                result = connection.execute(sqlalchemy.text(statement), values)
                return [tuple(row) for row in result] if result.returns_rows else []

            exists = "SELECT to_regclass('hangscope_meta') IS NOT NULL"
            _prepare(run, shown, writing, exists, lock="SELECT pg_advisory_xact_lock(7710)")
            yield run
    except (sqlalchemy.exc.SQLAlchemyError, ImportError) as error:
        said = presentable(str(getattr(error, "orig", None) or error).strip().splitlines()[0])[:300]
        hint = "check the URL and whether the server runs"
        raise StoreError(f"the store {shown} cannot be used: {said}", hint) from None


def _prepare(
    run: Run,
    shown: str,
    writing: bool,
    exists: str = "SELECT COUNT(*) FROM sqlite_master WHERE name = 'hangscope_meta'",
    lock: str = "",
) -> None:
    """Make the tables where there are none. Raises StoreError where they are of another version."""
    if not run(exists, {})[0][0]:
        if not writing:
            raise StoreError(f"{shown} holds no incidents", _EMPTY)
        for statement in (*([lock] if lock else ()), *_TABLES):
            run(statement, {})
    found = run("SELECT value FROM hangscope_meta WHERE name = 'version'", {})
    version = found[0][0] if found else None
    if version != VERSION:
        what = f"the store {shown} has format {version}, and this hangscope uses format {VERSION}"
        raise StoreError(what, "use the hangscope that wrote it, or give another store")
