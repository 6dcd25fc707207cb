"""The setting of NCCL with which a job that hangs runs after all, as the reporter of a text says or shows.

With NCCL_P2P_DISABLE=1 it works.                a sentence
$ NCCL_IB_DISABLE=1 torchrun train.py            another run, and what it printed
all ranks done, success
"""

from __future__ import annotations

from collections.abc import Sequence

from hangscope.model.dataclass import dataclass
from hangscope.model.regex import regex
from hangscope.model.tables import entries

_NAME = r"(NCCL_(?!DEBUG)[A-Z][A-Z0-9_]{2,40})(?: ?= ?[\w.:,-]{1,40}|(?= (?:set|on|off|disabled|enabled)))?"
_WORKS = r"(?:works?|worked|runs?|ran|fine|finish\w*|trains?|ok|helps?|helped|solves?|solved|fixes|fixed|passes|completes?|goes through)"
_NOT = r"(?:\w{0,8}n['’]t|not|no|never|neither|nothing|still|hangs?|without|same|fails?)"
_SAID = (
    regex(rf"\b{_NAME}(?:(?!\b{_NOT}\b)[^.;\n]){{0,60}}?\b{_WORKS}\b(?!\W{{1,3}}{_NOT}\b)"),
    regex(
        rf"\b{_WORKS} (?:\w{{1,12}} )?(?:with|if|when|once|after)\b(?:(?!\b{_NOT}\b)[^.;\n]){{0,40}}?\b{_NAME}"
    ),
)
_RUN = regex(rf"^[\w@.:~/()-]{{0,60}}[$#>] (?:\S{{1,80}} ){{0,6}}?{_NAME} ")
_PASSED = regex(r"(?i)\b(?:success\w*|passed|works|all done|finished|completed)\b")
_SHOWN = 8  # lines below a command


@dataclass(frozen=True, slots=True)
class Setting:
    """One entry of the table: settings whose names begin so, the path that they take out of use or choose, and what to look at then."""

    name: str
    path: str
    look: str


def setting(name: str) -> Setting:
    """Return what is known of a setting of NCCL; the last entry is of all."""
    known = (Setting(**entry) for entry in entries("lines/settings.toml", "setting"))
    return next(one for one in known if name.startswith(one.name))


def helpful_setting(texts: Sequence[str], said: str) -> str:
    """Return the name of the setting; empty where nobody says so and no run with one ends well. `said`: what people write in it."""
    for text in (said, *texts):
        if match := next(filter(None, (form.search(text) for form in _SAID)), None):
            return match[1]
    for place, text in enumerate(texts):
        if (run := _RUN.match(text)) and any(
            _PASSED.search(t) for t in texts[place + 1 : place + 1 + _SHOWN]
        ):
            return run[1]
    return ""
