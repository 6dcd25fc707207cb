"""The package's dataclasses behave as the standard library's with the same arguments."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import subprocess
import sys
from dataclasses import FrozenInstanceError, field, replace
from typing import Any

import pytest

from hangscope import records
from tests.conftest import ROOT


def shaped(dataclass: Any) -> tuple[type, type, type]:
    """Return three classes made by one decorator."""

    @dataclass(frozen=True, slots=True)
    class Point:
        """A place."""

        x: int
        y: int = 2
        tags: tuple[str, ...] = ()
        seen: list[int] = field(default_factory=list, repr=False)

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Named(Point):
        name: str = ""

    @dataclass(slots=True)
    class Count:
        n: int
        double: int = field(init=False)

        def __post_init__(self) -> None:
            self.double = 2 * self.n

    return Point, Named, Count


LIBRARY, OWN = shaped(dataclasses.dataclass), shaped(records.dataclass)
for number, kind in enumerate(OWN):
    kind.__qualname__ = kind.__name__ = f"OWN{number}"
    globals()[kind.__name__] = kind


@pytest.mark.parametrize(("point", "named", "count"), [LIBRARY, OWN], ids=["library", "own"])
def test_they_are_made_compared_and_shown_alike(point: Any, named: Any, count: Any) -> None:
    one, other = point(1, tags=("a",)), point(1, 2, ("a",))
    assert one == other and one is not other and one != point(2) and one != (1, 2, ("a",), [])
    assert one.seen == [] and one.seen is not other.seen
    assert repr(one).endswith("(x=1, y=2, tags=('a',))")
    assert replace(one, y=5).y == 5
    assert [f.name for f in dataclasses.fields(named)] == ["x", "y", "tags", "seen", "name"]
    assert named(1, name="n").name == "n" and named(1, name="n") != one
    assert count(3).double == 6 and count(3) == count(3)
    assert not hasattr(one, "__dict__") and point.__match_args__ == ("x", "y", "tags", "seen")


@pytest.mark.parametrize(("point", "named", "count"), [LIBRARY, OWN], ids=["library", "own"])
def test_what_is_frozen_stays_as_it_is(point: Any, named: Any, count: Any) -> None:
    one = named(1, name="n")
    with pytest.raises(FrozenInstanceError):
        one.x = 2
    with pytest.raises(FrozenInstanceError):
        del one.x
    changed = count(1)
    changed.n = 9
    assert changed.n == 9
    with pytest.raises(TypeError):
        hash(changed)


@pytest.mark.parametrize(("point", "named", "count"), [LIBRARY, OWN], ids=["library", "own"])
def test_arguments_that_do_not_fit_are_refused(point: Any, named: Any, count: Any) -> None:
    for wrong in (
        lambda: point(),
        lambda: point(1, 2, (), [], 5),
        lambda: named(1, 2, (), [], "n"),
        lambda: point(z=1),
    ):
        with pytest.raises(TypeError, match="argument"):
            wrong()


def test_frozen_ones_are_hashed_by_their_values() -> None:
    @records.dataclass(frozen=True, slots=True)
    class Pair:
        a: int
        b: str

    @records.dataclass(frozen=True, slots=True)
    class One:
        a: int

    assert hash(Pair(1, "x")) == hash((1, "x")) and len({Pair(1, "x"), Pair(1, "x"), Pair(2, "x")}) == 2
    assert One(1) == One(1) and hash(One(1)) == hash((1,))


def test_they_can_be_copied_and_pickled() -> None:
    one = OWN[1](1, tags=("a",), name="n")
    assert copy.deepcopy(one) == one == pickle.loads(pickle.dumps(one))
    assert copy.copy(OWN[2](4)) == OWN[2](4)


def test_importing_the_analysis_compiles_no_method() -> None:
    """Where a module takes the standard library's, its methods are compiled again while it is imported."""
    code = (
        "import dataclasses; made = []; plain = dataclasses._process_class\n"
        "def counted(cls, init, *rest, **more):\n"
        "    made.extend([cls.__module__] * bool(init)); return plain(cls, init, *rest, **more)\n"
        "dataclasses._process_class = counted\n"
        "import hangscope.analysis, hangscope.report.html.render, hangscope.ingest.assemble\n"
        "print([name for name in made if name.startswith('hangscope')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "[]\n"
