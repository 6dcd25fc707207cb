"""Classes made by the package's decorator beside those that the standard library makes of the same fields."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import inspect
import pickle
from collections.abc import Iterator
from dataclasses import field
from typing import Any

import pytest

from hangscope.model import dataclass as lazy
from hangscope.model.conclusion import Location
from tests.conftest import ROOT

BODIES = {
    "frozen": ({"frozen": True, "slots": True}, {"a": (int,), "b": (str, "x"), "c": (tuple, ())}),
    "keywords": ({"frozen": True, "slots": True, "kw_only": True}, {"a": (int, 1), "b": (str,)}),
    "mutable": ({"slots": True}, {"a": (int,), "b": (list, field(default_factory=list))}),
    "hidden": ({"slots": True}, {"a": (int,), "b": (dict, field(default_factory=dict, repr=False))}),
    "identity": ({"slots": True, "eq": False}, {"a": (int,), "b": (int, field(init=False, default=7))}),
    "one": ({"frozen": True, "slots": True}, {"a": (int,)}),
    "none": ({"frozen": True, "slots": True}, {}),
    "without slots": ({}, {"a": (int,), "b": (int, 2)}),
}


def both(name: str) -> tuple[Any, Any]:
    """Return a class as the standard library makes it, and as the package does."""
    options, fields = BODIES[name]

    def body() -> dict[str, Any]:
        values = {key: copy.copy(given[1]) for key, given in fields.items() if len(given) > 1}
        hints = {key: given[0] for key, given in fields.items()}
        return {"__annotations__": hints, "__qualname__": "Made", "__module__": __name__, **values}

    standard, ours = type("Made", (), body()), type("Made", (), body())
    return dataclasses.dataclass(**options)(standard), lazy._lazy(**options)(ours)  # type: ignore[call-overload]


@pytest.mark.parametrize("often", [False, True], ids=["rarely made", "often made"])
@pytest.mark.parametrize("name", BODIES)
def test_instances_are_as_the_standard_ones(name: str, often: bool) -> None:
    for given in ({}, {"a": 5}, {"a": 5, "b": [1]}, {"b": "z"}, {"nothing": 1}):
        standard, ours = both(name)
        if often:
            ours.__init__ = lazy._init(ours, ours.__setattr__ is lazy._refuse)
        try:
            wanted = standard(**given)
        except TypeError:
            with pytest.raises(TypeError):
                ours(**given)
            continue
        made = ours(**given)
        assert repr(made) == repr(wanted)
        assert dataclasses.asdict(made) == dataclasses.asdict(wanted)
        assert (made == ours(**given)) is (wanted == standard(**given))
        assert made != wanted
        assert dataclasses.replace(made) is not made
        assert dataclasses.asdict(copy.deepcopy(made)) == dataclasses.asdict(made)


@pytest.mark.parametrize("name", BODIES)
def test_signatures_are_the_standard_ones(name: str) -> None:
    standard, ours = both(name)
    compiled = lazy._init(ours, frozen=True)
    assert parameters(compiled) == parameters(standard.__init__)
    assert ours.__match_args__ == standard.__match_args__
    assert (ours.__hash__ is None) is (standard.__hash__ is None)


def test_of_positions_and_names_none_is_given_twice_or_too_many() -> None:
    for args, named in (
        ((1,), {"a": 2}),
        ((1, "x", (), 4), {}),
        ((1, "x"), {"c": (2,)}),
        ((1,), {"c": (2,)}),
    ):
        standard, ours = both("frozen")
        try:
            wanted = standard(*args, **named)
        except TypeError:
            with pytest.raises(TypeError):
                ours(*args, **named)
        else:
            assert dataclasses.asdict(ours(*args, **named)) == dataclasses.asdict(wanted)


def test_a_class_with_many_instances_gets_the_compiled_init() -> None:
    _, ours = both("mutable")
    first = ours.__init__
    made = [ours(number) for number in range(lazy.FEW + 2)]
    assert ours.__init__ is not first
    assert [(one.a, one.b) for one in made] == [(number, []) for number in range(lazy.FEW + 2)]
    assert made[0].b is not made[1].b
    assert made[-1].b is not made[-2].b


def test_a_frozen_class_stays_as_it_is() -> None:
    place = Location("train.py", 3, "step", 1)
    for change in (lambda: setattr(place, "line", 4), lambda: delattr(place, "line")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            change()
    assert hash(place) == hash(Location("train.py", 3, "step", 1))
    assert {place: 1}[dataclasses.replace(place)] == 1
    assert pickle.loads(pickle.dumps(place)) == place
    assert copy.copy(place) == place


def test_own_methods_and_those_after_init_stay() -> None:
    @lazy.dataclass(slots=True)
    class Counted:
        """Counts what it was given."""

        items: list[int]
        count: int = field(init=False)

        def __post_init__(self) -> None:
            self.count = len(self.items)

        def __repr__(self) -> str:
            return "own"

    assert Counted([1, 2]).count == 2
    assert repr(Counted([])) == "own"
    with pytest.raises(TypeError):
        hash(Counted([]))


def test_every_class_of_the_package_is_made_here_and_takes_what_the_standard_one_would() -> None:
    found = list(classes())
    assert len(found) > 200
    for kind in found:
        assert not kind.__dataclass_params__.init, f"{kind} is made by the standard decorator"
        fields = [(f.name, f.type, copy.copy(f)) for f in dataclasses.fields(kind)]
        standard = dataclasses.make_dataclass("Standard", fields)
        assert parameters(lazy._init(kind, frozen=True)) == parameters(standard.__init__)


def parameters(init: Any) -> list[tuple[str, Any, bool]]:
    """Return the name and kind of each parameter, and whether it must be given."""
    return [(p.name, p.kind, p.default is p.empty) for p in inspect.signature(init).parameters.values()]


def classes() -> Iterator[Any]:
    """Yield the dataclasses of the package; the agent that runs inside a job is of the standard library alone."""
    for path in sorted((ROOT / "hangscope").rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        if "@dataclass" in path.read_text(encoding="utf-8") and ".agent." not in name:
            for value in vars(importlib.import_module(name)).values():
                if (
                    inspect.isclass(value)
                    and dataclasses.is_dataclass(value)
                    and getattr(value, "__module__", "") == name
                ):
                    yield value
