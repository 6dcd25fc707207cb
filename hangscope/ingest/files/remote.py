"""Files behind fsspec URLs (`s3://`, `gs://`, `memory://`): listed at once, fetched one by one while others are read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hangscope.errors import NoSuchPathError, UsageError

FETCHES = 8  # files that are fetched at a time; no more of them lie on the local disk


def is_remote(path: str) -> bool:
    """Return whether a path is a URL."""
    return "://" in path


def listed(url: str, lost: list[str]) -> Iterator[tuple[str, str, int]]:
    """Yield (URL, name below `url`, size in bytes) of every file at or below `url`; add to `lost` why a folder was not listed.

    Raises UsageError without fsspec, NoSuchPathError where the backend cannot list it or there is nothing.
    """
    try:
        import fsspec
    except ImportError:
        raise UsageError(f"reading {url!r} needs fsspec", "pip install 'hangscope[remote]'") from None
    try:
        filesystem, root = fsspec.core.url_to_fs(url)
        found, root = _found(filesystem, root, lost)
    except ImportError as error:
        hint = "install the fsspec backend that it needs"
        raise UsageError(f"{url!r} cannot be read: {error}", hint) from None
    except Exception as error:  # fsspec backends raise what they like
        hint = "check the scheme, the URL and the credentials of its backend"
        raise NoSuchPathError(f"{url!r} cannot be listed: {error}", hint) from None
    if not found:
        hint = "check the spelling, or whether the job wrote elsewhere"
        raise NoSuchPathError(f"there is nothing at {url!r}", hint)
    for name, info in sorted(found.items()):
        shown = os.path.relpath(name, root) if name != root else os.path.basename(name)
        yield _address(filesystem, url, name), shown, int(info.get("size") or 0)


def _found(filesystem: Any, root: str, lost: list[str]) -> tuple[dict[str, Any], str]:
    """Return the listed properties of each file by its name, and the folder to which shown names are relative."""
    from fsspec import AbstractFileSystem

    options: dict[str, Any] = {}
    if type(filesystem).find is AbstractFileSystem.find:  # which leaves out what it cannot list; others raise
        options["on_error"] = lambda error: lost.append(f"{error.strerror or error}"[:200])
    found: dict[str, Any] = filesystem.find(root, detail=True, **options)
    if not found and lost and filesystem.isdir(root):
        raise OSError(lost[0])
    if not found and filesystem.exists(root):
        return {root: filesystem.info(root)}, root
    if not found and "*" in root:
        for name in filesystem.glob(root):
            found |= filesystem.find(name, detail=True) or {name: filesystem.info(name)}
        root = root.split("*", 1)[0].rpartition("/")[0]
    return found, root


def _address(filesystem: Any, url: str, name: str) -> str:
    """Return the URL of a file that was listed at `url`: in a chained one it takes the first path's place."""
    first, chained, behind = url.partition("::")
    if not chained:
        return str(filesystem.unstrip_protocol(name))
    scheme, is_path, _ = first.partition("://")
    if is_path:
        return f"{scheme}://{name.lstrip('/')}::{behind}"
    more, chained, behind = behind.partition("::")  # `simplecache::s3://...` has its path behind it
    return f"{first}::{more.partition('://')[0]}://{name}{chained}{behind}"


@contextmanager
def local_copy(path: str) -> Iterator[str]:
    """Give the path of a file on the local disk: `path` itself, or a copy of a URL that lasts as long as the context.

    Raises OSError where it cannot be fetched.
    """
    if not is_remote(path):
        yield path
        return
    from hangscope.ingest.files.scratch import scratch_folder

    with scratch_folder() as folder:
        copy = os.path.join(folder, "copy" + os.path.basename(path)[-40:])
        try:
            import fsspec

            filesystem, name = fsspec.core.url_to_fs(path)
            filesystem.get_file(name, copy)
        except Exception as error:
            raise OSError(f"{type(error).__name__}: {error}") from error
        yield copy
