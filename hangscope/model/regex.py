"""Regular expressions that are compiled when they are first used: a run needs few of those that its modules hold."""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Any


class LazyPattern:
    """Stands for a compiled pattern: it has its methods and attributes, but is none where `re` itself asks for one."""

    def __init__(self, expression: str | bytes, flags: int = 0) -> None:
        self._asked = (expression, flags)

    @cached_property
    def compiled(self) -> re.Pattern[Any]:
        """Return the pattern itself."""
        return re.compile(*self._asked)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the pattern, from now on without this detour."""
        if name.startswith("__"):
            raise AttributeError(name)
        value = self.__dict__[name] = getattr(self.compiled, name)
        return value


if TYPE_CHECKING:
    regex = re.compile
else:
    regex = LazyPattern
