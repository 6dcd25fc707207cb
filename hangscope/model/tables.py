"""The package's own tables, which are TOML files: the one place that reads them."""

from __future__ import annotations

import sys
from importlib.resources import files
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:  # the same parser, before it was part of Python
    import tomli as tomllib

__all__ = ["entries", "tomllib"]


def entries(path: str, name: str) -> list[dict[str, Any]]:
    """Return the entries `[[name]]` of a file of hangscope/knowledge, or of all files of a folder there in the order of their names."""
    place = (files("hangscope") / "knowledge").joinpath(*path.split("/"))
    inside = sorted(place.iterdir(), key=lambda file: file.name) if place.is_dir() else [place]
    found = [file for file in inside if file.name.endswith(".toml")]
    return [entry for file in found for entry in tomllib.loads(file.read_text(encoding="utf-8"))[name]]
