"""Build hook: compile the page's templates into the wheel (`hangscope/report/html/templates.py`)."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompiledTemplates(BuildHookInterface[Any]):
    """Adds the compiled templates to a wheel; an editable installation reads those of the checkout."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the templates and name where they go."""
        if version == "editable":
            return
        sys.path.insert(0, self.root)
        try:
            from hangscope.report.html.templates import COMPILED, compile_into
        finally:
            sys.path.remove(self.root)
        self.folder = tempfile.TemporaryDirectory(prefix="hangscope-templates-")
        compile_into(Path(self.folder.name), Path(self.root) / "report_templates")
        build_data["force_include"][self.folder.name] = f"hangscope/report_templates/{COMPILED}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was compiled, which the wheel holds by now."""
        if version != "editable":
            self.folder.cleanup()
