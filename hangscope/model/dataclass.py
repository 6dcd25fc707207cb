"""`dataclass` as the standard library has it, but nothing is compiled for a class of which a run makes few instances.

The standard decorator compiles up to six methods of every class that is imported (Python 3.11: 0.4 ms a class), and of most
classes a run makes no instance or a handful. Fields, slots and all functions of `dataclasses` (`fields`, `replace`, ...) are the
standard ones, and so is `__init__` where many instances are made; of its options only those that this project uses are known.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from copy import copy
from functools import partial
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, cast


def _lazy(
    cls: type | None = None,
    /,
    *,
    eq: bool = True,
    frozen: bool = False,
    kw_only: bool = False,
    slots: bool = False,
) -> Any:
    """Return a class as a dataclass, or the decorator that does so; a method in the class's own body stays."""
    if cls is None:
        return partial(_lazy, eq=eq, frozen=frozen, kw_only=kw_only, slots=slots)
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=kw_only, slots=slots)(cls)
    compare, number, state = _by_values(made)
    methods: dict[str, Any] = {"__init__": _first_init(made, frozen), "__repr__": _repr}
    if eq:
        methods |= {"__eq__": compare, "__hash__": number if frozen else None}
    if frozen:
        methods |= {"__setattr__": _refuse, "__delattr__": _refuse}
        methods |= {"__getstate__": state, "__setstate__": _restore}
    for name, method in methods.items():
        if name not in cls.__dict__:
            setattr(made, name, method)
    return made


FEW = 50  # instances of a class that are made without compiling anything

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    dataclass = _lazy


def _first_init(made: type, frozen: bool) -> Callable[..., None]:
    """Return an `__init__` that sets one field after another, until it has been called so often that the compiled one pays."""
    fields = dataclasses.fields(made)
    positions = [field.name for field in fields if field.init and not field.kw_only]
    taken = {field.name for field in fields if field.init}
    defaults = {f.name: f.default for f in fields if f.default is not dataclasses.MISSING}
    factories = {f.name: f.default_factory for f in fields if f.default_factory is not dataclasses.MISSING}
    wanted = taken | defaults.keys() | factories.keys()
    finish = getattr(made, "__post_init__", None)
    before = 0

    def __init__(self: Any, /, *args: Any, **named: Any) -> None:
        nonlocal before
        before += 1
        values = {**defaults, **dict(zip(positions, args, strict=False)), **named}
        for name in factories.keys() - values.keys():
            values[name] = factories[name]()
        free = taken.difference(positions[: len(args)])
        if before > FEW or len(args) > len(positions) or not named.keys() <= free or values.keys() != wanted:
            compiled = _init(made, frozen)
            type.__setattr__(made, "__init__", compiled)
            compiled(self, *args, **named)  # or it says what is wrong with them
            return
        for name, value in values.items():
            object.__setattr__(self, name, value)
        if finish is not None:
            finish(self)

    return __init__


def _init(made: Any, frozen: bool) -> Callable[..., None]:
    """Return the `__init__` that the standard decorator makes for the fields of a class."""
    fields = [(field.name, field.type, copy(field)) for field in dataclasses.fields(made)]
    namespace = {name: getattr(made, name) for name in ("__post_init__",) if hasattr(made, name)}
    alike = dataclasses.make_dataclass(
        made.__name__,
        fields,
        namespace=namespace,
        repr=False,
        eq=False,
        frozen=frozen,
        slots="__slots__" in made.__dict__,
    )
    return cast(Callable[..., None], vars(alike)["__init__"])


def _by_values(made: Any) -> tuple[Callable[..., Any], ...]:
    """Return the comparison, the hash and the state of a class's instances, which go by the values of all fields."""
    names = [field.name for field in dataclasses.fields(made)]
    values: Callable[[Any], tuple[Any, ...]] = (
        attrgetter(*names) if len(names) > 1 else lambda self: tuple(getattr(self, name) for name in names)
    )

    def __eq__(self: Any, other: Any) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: Any) -> int:
        return hash(values(self))

    def __getstate__(self: Any) -> tuple[Any, ...]:
        return values(self)

    return __eq__, __hash__, __getstate__


@recursive_repr()
def _repr(self: Any) -> str:
    shown = (
        f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr
    )
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _refuse(self: object, name: str, value: object = None) -> None:
    """Stand in for `__setattr__` and `__delattr__` of a frozen class."""
    raise dataclasses.FrozenInstanceError(f"cannot change field {name!r}")


def _restore(self: Any, state: tuple[Any, ...]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)
