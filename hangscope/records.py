"""Dataclasses whose methods are made when they are first needed.

The standard library writes and compiles six methods for every frozen dataclass while its module is imported. With two
hundred of them that took a quarter of the analysis of a small job, which makes instances of a third of them. Here the
constructor and the hash are compiled for the first instance, and comparison and text are functions that all classes share. Fields,
`replace`, `field`, inheritance and keyword-only arguments are the standard library's own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError
from operator import attrgetter
from typing import TYPE_CHECKING, Any

_getters: dict[type, Callable[[Any], tuple[Any, ...]]] = {}


def _lazy(cls: type, *, frozen: bool, slots: bool, eq: bool, kw_only: bool) -> type:
    """Return a class as a dataclass."""
    own = dict(cls.__dict__)
    cls.__doc__ = cls.__doc__ or cls.__name__  # else the standard library writes one from the signature
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)(cls)
    if "__init__" not in own:
        made.__init__ = _first_init(made, frozen)
    if "__repr__" not in own:
        made.__repr__ = _repr
    if eq:
        made.__eq__ = own.get("__eq__", _eq)
        made.__hash__ = own.get("__hash__") or (_hash if frozen else None)
    if frozen:
        made.__setattr__, made.__delattr__ = _no_setting, _no_deleting
        made.__getstate__, made.__setstate__ = _state, _take_state
    return made  # type: ignore[no-any-return]


def _first_init(cls: Any, frozen: bool) -> Callable[..., None]:
    """Return a constructor that puts the real methods in their places, and calls the real one."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        _compile(cls, frozen)
        cls.__init__(self, *args, **kwargs)

    return __init__


def _compile(cls: Any, frozen: bool) -> None:
    """Give a class its own constructor, and its own hash where it has the one that all share."""
    plain: list[str] = []
    named: list[str] = []
    lines: list[str] = []
    names: dict[str, Any] = {"_set": object.__setattr__, "_missing": MISSING}
    fields = dataclasses.fields(cls)
    for field in fields:
        name = value = field.name
        if field.default_factory is not MISSING:
            names[f"_make_{name}"] = field.default_factory
            value = f"_make_{name}()"
        if field.init:
            default = ""
            if field.default is not MISSING:
                names[f"_default_{name}"] = field.default
                default = f"=_default_{name}"
            elif field.default_factory is not MISSING:
                default = "=_missing"
                value += f" if {name} is _missing else {name}"
            (named if field.kw_only else plain).append(name + default)
        elif field.default_factory is MISSING:
            continue  # the class itself sets it
        lines.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    parameters = ", ".join(["self", *plain, *(["*", *named] if named else [])])
    body = "\n    ".join(lines or ["pass"])
    code = [f"def __init__({parameters}):\n    {body}"]
    if cls.__dict__.get("__hash__") is _hash:
        code.append(
            f"def __hash__(self):\n    return hash(({''.join(f'self.{field.name},' for field in fields)}))"
        )
    exec("\n".join(code), names)
    for name in ("__init__", "__hash__"):
        if name in names:
            names[
                name
            ].__qualname__ = f"{cls.__qualname__}.{name}"  # which Python names where arguments do not fit
            setattr(cls, name, names[name])


def _values(self: Any) -> tuple[Any, ...]:
    """Return the values of all fields."""
    getter = _getters.get(self.__class__)
    if getter is None:
        names = [field.name for field in dataclasses.fields(self)]
        several = attrgetter(*names) if len(names) > 1 else None
        getter = several or (lambda one: tuple(getattr(one, name) for name in names))
        _getters[self.__class__] = getter
    return getter(self)


def _eq(self: Any, other: object) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    return _values(self) == _values(other)


def _hash(self: Any) -> int:
    return hash(_values(self))


def _repr(self: Any) -> str:
    shown = (
        f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr
    )
    return f"{self.__class__.__qualname__}({', '.join(shown)})"


def _no_setting(self: Any, name: str, value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _no_deleting(self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> tuple[Any, ...]:
    return _values(self)


def _take_state(self: Any, state: tuple[Any, ...]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, *, frozen=False, slots=False, eq=True, kw_only=False):
        """Make a class a dataclass, as `dataclasses.dataclass` with these arguments does."""

        def made(cls):
            return _lazy(cls, frozen=frozen, slots=slots, eq=eq, kw_only=kw_only)

        return made if cls is None else made(cls)
