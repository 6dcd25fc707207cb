"""torch.distributed.debug (torch 2.13): a page with the diagnosis in its server.

`start_debug_server(start_method="spawn", handlers=[*default_handlers(), HangscopePage()])`, with `default_handlers` of
`torch.distributed.debug._debug_handlers`. Its JSON dumps have no frames, so the stacks of its own endpoint are added.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from torch.distributed.debug._frontend import DebugHandler, NavLink, Route, fetch_all

import hangscope

_RECORDERS = (("comm_lib_trace_rank", "fr_trace_json"), ("nccl_trace_rank", "dump_nccl_trace_json"))


class HangscopePage(DebugHandler):
    """The page /hangscope: all ranks' recorders and stacks, analysed when it is asked for."""

    def routes(self) -> list[Any]:
        """Return where the page is."""
        return [Route("/hangscope", self.page)]

    def nav_links(self) -> list[Any]:
        """Return its place in the menu."""
        return [NavLink("/hangscope", "Hangscope")]

    def page(self, request: Any) -> bytes:
        """Return the report of the job as it is now."""
        with tempfile.TemporaryDirectory(prefix="hangscope-") as folder:
            ranks = 0
            for name, endpoint in _RECORDERS:
                ranks = max(ranks, self._put(Path(folder), f"{name}_{{}}.json", endpoint))
            self._put(Path(folder), "stack_rank_{}.txt", "dump_traceback")
            return hangscope.analyze_safely(folder, world_size=ranks or None).to_html().encode()

    def _put(self, folder: Path, name: str, endpoint: str) -> int:
        """Write each rank's answer, and return how many ranks were asked; one that does not answer has no file."""
        _, answers = fetch_all(endpoint, timeout=self.fetch_timeout)
        for rank, answer in enumerate(answers):
            if answer.status_code == 200:
                (folder / name.format(rank)).write_text(answer.text)
        return len(answers)
