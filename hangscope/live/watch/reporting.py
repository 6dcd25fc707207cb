"""The report of a run: who writes it, from what, and what is printed about it on stderr."""

from __future__ import annotations

import json
import os
import stat
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from hangscope.errors import Note
from hangscope.ingest.files.run_evidence import ELSEWHERE, NAME, SCHEMA, is_unfinished
from hangscope.live.folder import RunFolder, leave, ranks_in
from hangscope.live.look.processes import Process
from hangscope.live.watch.link import Options
from hangscope.live.watch.nodes import Nodes, wait_until
from hangscope.model.rankset import ranks_phrase

_SUMMARY = 4000  # bytes; Kubernetes keeps 4,096 of a termination message


class Reporting:
    """The reports of one run on one node; the last one stands."""

    def __init__(self, folder: RunFolder, nodes: Nodes, options: Options) -> None:
        self.folder, self.nodes, self.options = folder, nodes, options
        self.began = time.time()
        self.world_size = 0
        self.torch = ""  # the version that the command uses
        self.here: set[int] = set()  # global ranks that were seen on this node
        self.missing: list[str] = []
        self.problems: list[str] = []  # what could not be watched
        self.status = ""  # of the last report
        self.culprits: frozenset[int] = frozenset()
        self.printed: list[bytes] = []  # on stderr
        self.settled = False  # a report names what froze: the ending that follows is no news

    def say(self, text: str) -> None:
        """Print a line on stderr."""
        self._print(f"hangscope: {text}\n")

    def _print(self, text: str) -> None:
        if not self.options.quiet:
            with suppress(OSError, ValueError):
                print(text, file=sys.stderr, end="", flush=True)
                encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
                self.printed.append(text.encode(encoding, "backslashreplace"))

    def problem(self, text: str) -> None:
        """Print what could not be watched, once, and keep it for the report."""
        if text not in self.problems:
            self.problems.append(text)
            self.say(text)

    def saw(self, processes: Sequence[Process]) -> None:
        """Take note of the ranks that were seen, and of how many there are."""
        sizes = [p.world_size or 0 for p in processes]
        self.world_size = max([self.world_size, *sizes])
        seen = {p.rank for p in processes if p.rank is not None} | self.here
        if seen != self.here:
            self.here = seen
            self.nodes.has(seen)

    def report(
        self,
        deadline: float,
        *,
        wait: float,
        hurry: Callable[[], bool],
        ended: bool = False,
        job_is_over: bool = False,
    ) -> None:
        """Analyse what is there within `deadline` seconds and write the report, or wait until another node has.

        Waits up to `wait` seconds for what other nodes still write. `ended` says that the job was ended from outside: then
        what was left of a freeze before that counts, and not what the launcher printed of its end. Whatever goes wrong is
        told in a line.
        """
        page, data = self.folder.path / "report.html", self.folder.path / "report.json"
        if (reporter := self.nodes.reporter()) != self.nodes.name:
            host = reporter.rpartition(".")[0] or "another node"
            self.say(f"{host} writes the report, in {self.folder.path}")
            self.settled = True
            if not job_is_over:  # the other node reads what ours would write as it ends
                wait_until(data.exists, wait + deadline, hurry)
                with suppress(OSError, ValueError, KeyError, TypeError):  # it decides how the job ends here
                    report = json.loads(data.read_bytes())
                    self.culprits = frozenset((report["verdict"] or {"culprit_ranks": ()})["culprit_ranks"])
                    self.status = report["status"]
            return
        wait_until(lambda: not self.nodes.late(), wait, hurry)
        late = self.nodes.late()
        from hangscope import analyze_safely

        chosen = (self.folder.before_the_end() if ended else []) or [self.folder.path]
        try:
            notes = [*self._ranks_elsewhere(), *(Note("not_watched", text) for text in self.problems)]
            facts = {"torch": self.torch, "began": self.began, "hosts": self.nodes.ranks()}
            write_evidence(self.folder.path, chosen, self.world_size, notes, **facts)
        except OSError as error:
            self.say(f"the list of the evidence cannot be written: {error.strerror or error}")
        options: dict[str, Any] = {"world_size": self.world_size} if self.world_size else {}
        if self.options.store or "HANGSCOPE_STORE" in os.environ:
            options |= {"store": self.options.store, "report_path": str(page)}
        report = analyze_safely([self.folder.path], deadline=deadline, **options)
        self.status = report.status
        self.culprits = frozenset(report.verdict.culprit_ranks if report.verdict is not None else ())
        self._print(report.to_text())
        try:
            report.write_html(page, force=True)
            leave(data, report.to_json().encode())
            if self.options.summary is not None:
                Path(self.options.summary).write_bytes(report.to_markdown().encode()[:_SUMMARY])
        except OSError as error:
            self.say(f"the report cannot be written: {error.strerror or error}")
            return
        self.settled = report.status == "hang" and bool(self.culprits)
        self.say(f"Wrote {page}")
        for text in self.missing:
            self.say(f"not available: {text}")
        if late:
            self.say(f"without {', '.join(sorted(late))}, which did not answer in {wait:g} s")

    def unseen(self) -> set[int]:
        """Return the ranks of the job that no node with this folder has seen, and those that the report names without that."""
        left = ranks_in(self.folder.path, "logs/restart_*/rank_*.*")
        there = {rank for ranks in self.nodes.ranks().values() for rank in ranks}
        return ({*range(self.world_size)} | self.culprits) - self.here - left - there

    def _ranks_elsewhere(self) -> list[Note]:
        """Return what the report says of ranks whose node does not share the folder, with how to join the nodes' evidence."""
        elsewhere = self.unseen()
        if not elsewhere or len(elsewhere) == self.world_size or self.nodes.others():
            return []
        what = f"{ranks_phrase(elsewhere)} of {self.world_size} left nothing on this node"
        how = f"on each node `hangscope pack {self.folder.path} -o NODE.hangpack`, then `hangscope analyze *.hangpack`"
        return [Note(ELSEWHERE, what, hint=f"{how}; next time give all nodes one --dir on a shared disk")]


def write_evidence(
    folder: Path, chosen: Iterable[Path], world_size: int, notes: Sequence[Note] = (), **facts: Any
) -> None:
    """List the files at or below `chosen` as they are now, and what the run noted (`RunEvidence`). Raises OSError."""
    files: dict[str, tuple[int, float]] = {}
    for top in chosen:
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            info = os.lstat(path)
            name = path.relative_to(folder).as_posix()
            if stat.S_ISREG(info.st_mode) and name != NAME and not is_unfinished(path.name):
                files[name] = (info.st_size, info.st_mtime)
    told = [[note.code, note.message, note.hint] for note in notes]
    data = {"schema": SCHEMA, "world_size": world_size or None, "files": files, "notes": told, **facts}
    leave(folder / NAME, json.dumps(data).encode())
