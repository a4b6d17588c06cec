"""Values behave as the library's do: each rule is asked of both."""

import copy
import dataclasses
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from penstock.model import values

Decorator = Callable[..., Callable[[type[Any]], type[Any]]]


def _point(dataclass: Decorator, **options: bool) -> type[Any]:
    class Point:
        x: int
        y: int = 2
        names: list[str] = dataclasses.field(default_factory=list)

        def __len__(self) -> int:
            return self.x

    return dataclass(slots=True, kw_only=True, **options)(Point)


@dataclasses.dataclass(slots=True, kw_only=True, frozen=True)
class Library:
    x: int
    y: str = "y"


@values.dataclass(slots=True, kw_only=True, frozen=True)
class Ours:
    x: int
    y: str = "y"


@pytest.fixture(params=[dataclasses.dataclass, values.dataclass], ids=["library", "ours"])
def dataclass(request: pytest.FixtureRequest) -> Decorator:
    decorator: Decorator = request.param
    return decorator


def test_fields_are_given_by_name_or_have_their_default(dataclass: Decorator) -> None:
    point = _point(dataclass)(x=1, names=["a"])
    assert (point.x, point.y, point.names, len(point)) == (1, 2, ["a"], 1)


def test_a_default_that_is_made_is_made_for_each(dataclass: Decorator) -> None:
    point = _point(dataclass)
    assert point(x=1).names is not point(x=1).names


@pytest.mark.parametrize(
    "given", [{}, {"y": 1}, {"x": 1, "z": 1}, {"x": 1, "y": 2, "z": 3}, {"y": 1, "z": 2, "a": 3}]
)
def test_missing_and_unknown_fields_are_refused(
    dataclass: Decorator, given: dict[str, int]
) -> None:
    with pytest.raises(TypeError):
        _point(dataclass)(**given)


def test_fields_go_by_name_only(dataclass: Decorator) -> None:
    with pytest.raises(TypeError):
        _point(dataclass)(1, 2, [])


def test_equal_are_values_of_one_class_with_equal_fields(dataclass: Decorator) -> None:
    point, other = _point(dataclass), _point(dataclass)
    assert point(x=1) == point(x=1)
    assert point(x=1) != point(x=2)
    assert point(x=1) != other(x=1)
    assert point(x=1) != (1, 2, [])


def test_a_value_shows_its_fields(dataclass: Decorator) -> None:
    assert repr(_point(dataclass)(x=1)).endswith("Point(x=1, y=2, names=[])")


def test_a_class_keeps_what_it_defines_itself(dataclass: Decorator) -> None:
    @dataclass(slots=True, kw_only=True, frozen=True)
    class Secret:
        word: str

        def __repr__(self) -> str:
            return "Secret(...)"

    assert repr(Secret(word="open")) == "Secret(...)"


def test_a_frozen_value_does_not_change(dataclass: Decorator) -> None:
    point = _point(dataclass, frozen=True)(x=1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        point.x = 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        del point.x
    assert point.x == 1


def test_a_value_that_may_change_does_and_has_no_hash(dataclass: Decorator) -> None:
    point = _point(dataclass)(x=1)
    point.x = 3
    assert point.x == 3
    with pytest.raises(TypeError):
        hash(point)
    with pytest.raises(AttributeError):
        point.z = 1


def test_a_copy_with_changes_is_another_value(dataclass: Decorator) -> None:
    point = _point(dataclass, frozen=True)(x=1)
    moved = dataclasses.replace(point, y=5)
    assert (moved.x, moved.y, point.y) == (1, 5, 2)
    assert [field.name for field in dataclasses.fields(point)] == ["x", "y", "names"]
    assert dataclasses.asdict(moved) == {"x": 1, "y": 5, "names": []}


def test_a_value_without_fields_equals_its_like(dataclass: Decorator) -> None:
    @dataclass(slots=True, kw_only=True, frozen=True)
    class Nothing:
        pass

    @dataclass(slots=True, kw_only=True, frozen=True)
    class Nought:
        pass

    assert Nothing() == Nothing()
    assert hash(Nothing()) == hash(Nothing())
    assert Nothing() != Nought()  # type: ignore[comparison-overlap]


def test_fields_are_inherited(dataclass: Decorator) -> None:
    point = _point(dataclass, frozen=True)

    @dataclass(slots=True, kw_only=True, frozen=True)
    class Deep(point):  # type: ignore[misc, valid-type]
        z: int

    assert (Deep(x=1, z=3).x, Deep(x=1, z=3).z) == (1, 3)
    assert Deep(x=1, z=3) != point(x=1)


@pytest.mark.parametrize("made", [Library, Ours])
def test_frozen_values_are_hashed_copied_and_pickled_by_their_fields(made: type[Any]) -> None:
    value = made(x=1)
    assert {value: "found"}[made(x=1, y="y")] == "found"
    assert copy.copy(value) == value
    assert copy.deepcopy(value) == value
    assert pickle.loads(pickle.dumps(value)) == value


def test_every_other_form_is_the_librarys() -> None:
    @values.dataclass
    class Placed:
        x: int
        y: int = 2

    @values.dataclass(slots=True, eq=False)
    class Thing:
        x: int

    assert (Placed(1), Placed(1, 3).y) == (Placed(1, 2), 3)
    thing = Thing(1)
    assert thing == thing
    assert thing != Thing(1)
