"""A value class behaves as the same class of the standard library does."""

import copy
import dataclasses
import inspect
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any, ClassVar, Generic, TypeVar

import pytest

from cordwood import value_class

T = TypeVar("T")
Decorator = Callable[..., Any]


@value_class.dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    topic: str
    partition: int = 0
    notes: list[str] = value_class.field(default_factory=list)


@value_class.dataclass(frozen=True, slots=True)
class Pair(Generic[T]):
    first: T
    second: T


@value_class.dataclass(slots=True)
class Counter:
    count: int = 0
    parent: "Counter | None" = None


@value_class.dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedPlace(Place):
    url: str
    partition: int = 7


def frozen(decorator: Decorator, field: Decorator) -> Any:
    @decorator(frozen=True, slots=True, kw_only=True)
    class Shown:
        """It has everything."""

        limit: ClassVar[int] = 3
        name: str
        size: int = 4
        secret: str = field(default="x", repr=False)
        tags: dict[str, int] = field(default_factory=dict)
        marked: int = field(default=1, metadata={"key": "mark"})

        def __post_init__(self) -> None:
            if self.size > self.limit * 10:
                raise ValueError("too large")

        @property
        def double(self) -> int:
            return self.size * 2

    return Shown


def mutable(decorator: Decorator, field: Decorator) -> Any:
    @decorator(slots=True)
    class Shown:
        name: str
        size: int = 4
        tags: list[int] = field(default_factory=list)

    return Shown


def identity(decorator: Decorator, _field: Decorator) -> Any:
    @decorator(slots=True, eq=False)
    class Shown:
        name: str

    return Shown


def own_methods(decorator: Decorator, _field: Decorator) -> Any:
    @decorator(frozen=True, slots=True)
    class Shown:
        name: str

        def __repr__(self) -> str:
            return f"<{self.name}>"

        def __eq__(self, other: object) -> bool:
            return isinstance(other, type(self)) and self.name[0] == other.name[0]

        def __hash__(self) -> int:
            return 5

    return Shown


def empty(decorator: Decorator, _field: Decorator) -> Any:
    @decorator(frozen=True, slots=True, kw_only=True)
    class Shown:
        pass

    return Shown


BODIES = [frozen, mutable, identity, own_methods, empty]


def both(body: Callable[[Decorator, Decorator], Any]) -> tuple[Any, Any]:
    return (
        body(value_class.dataclass, value_class.field),
        body(dataclasses.dataclass, dataclasses.field),
    )


def outcome(action: Callable[[], object]) -> object:
    try:
        return action()
    except Exception as error:
        return type(error)


@pytest.mark.parametrize("body", BODIES)
def test_the_class_looks_like_that_of_the_standard_library(body: Callable[..., Any]) -> None:
    ours, theirs = both(body)

    assert str(inspect.signature(ours)) == str(inspect.signature(theirs))
    assert ours.__match_args__ == theirs.__match_args__
    assert ours.__slots__ == theirs.__slots__
    assert ours.__qualname__ == theirs.__qualname__
    assert ours.__module__ == theirs.__module__
    assert (ours.__hash__ is None) == (theirs.__hash__ is None)
    assert [
        (found.name, found.repr, found.kw_only, found.metadata, found.default)
        for found in dataclasses.fields(ours)
    ] == [
        (found.name, found.repr, found.kw_only, found.metadata, found.default)
        for found in dataclasses.fields(theirs)
    ]


@pytest.mark.parametrize(
    ("body", "values"),
    [
        (frozen, {"name": "a"}),
        (frozen, {"name": "a", "size": 9, "secret": "s", "tags": {"t": 1}, "marked": 2}),
        (frozen, {"name": "a", "size": 31}),
        (frozen, {}),
        (frozen, {"name": "a", "unknown": 1}),
        (mutable, {"name": "a"}),
        (mutable, {"name": "a", "tags": [1]}),
        (identity, {"name": "a"}),
        (own_methods, {"name": "ab"}),
        (empty, {}),
    ],
)
def test_values_behave_like_those_of_the_standard_library(
    body: Callable[..., Any], values: dict[str, Any]
) -> None:
    def facts(cls: Any) -> object:
        one, same = cls(**values), cls(**values)
        changed = outcome(lambda: dataclasses.replace(one, name="b"))
        return (
            repr(one).split("Shown", 1)[-1],
            one == same,
            one != same,
            one == object(),
            outcome(lambda: hash(one) == hash(same)),
            # Before Python 3.14, the standard library takes the wrong error for unknown names.
            outcome(lambda: setattr(one, "name", "c") if hasattr(one, "name") else None),
            outcome(lambda: delattr(one, "name") if hasattr(one, "name") else None),
            outcome(lambda: setattr(one, "unknown", 1)) is None,
            outcome(lambda: dataclasses.asdict(same)),
            repr(changed).split("Shown", 1)[-1] if not isinstance(changed, type) else changed,
            outcome(lambda: one.double),
            dataclasses.is_dataclass(one),
            copy.copy(same) is same,
            outcome(lambda: dataclasses.asdict(copy.deepcopy(same))),
            hasattr(one, "__dict__"),
        )

    ours, theirs = both(body)

    assert outcome(lambda: facts(ours)) == outcome(lambda: facts(theirs))


def test_positional_values_can_be_matched() -> None:
    match Pair(1, 2):
        case Pair(first, second):
            assert (first, second) == (1, 2)


def test_values_survive_pickling_and_copies() -> None:
    place = Place(topic="a", notes=["n"])

    assert pickle.loads(pickle.dumps(place)) == place
    assert copy.deepcopy(place) == place
    assert copy.deepcopy(place).notes is not place.notes
    assert pickle.loads(pickle.dumps(Counter(3))) == Counter(3)


def test_a_class_inherits_fields_and_may_change_their_defaults() -> None:
    archived = ArchivedPlace(topic="a", url="s3://b")

    assert repr(archived) == "ArchivedPlace(topic='a', partition=7, notes=[], url='s3://b')"
    assert archived != Place(topic="a", partition=7)
    assert archived == ArchivedPlace(topic="a", url="s3://b", partition=7)
    assert value_class.replace(archived, partition=1).partition == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        archived.topic = "b"  # type: ignore[misc]


def test_a_value_that_contains_itself_is_shown() -> None:
    counter = Counter(1)
    counter.parent = counter

    assert repr(counter) == "Counter(count=1, parent=...)"


def test_a_default_that_would_be_shared_is_refused() -> None:
    with pytest.raises(ValueError, match="use default_factory"):

        @value_class.dataclass(slots=True)
        class Shared:
            names: list[str] = []  # noqa: RUF012


def test_a_required_field_after_an_optional_one_is_refused() -> None:
    with pytest.raises(TypeError, match="non-default argument 'second'"):

        @value_class.dataclass(slots=True)
        class Turned:
            first: int = 1
            second: int  # type: ignore[misc]


def test_a_class_without_slots_is_refused() -> None:
    with pytest.raises(TypeError, match="slots=True"):

        @value_class.dataclass(frozen=True)
        class Loose:
            first: int = 1


def test_methods_are_compiled_by_their_first_call() -> None:
    @value_class.dataclass(frozen=True, slots=True)
    class Late:
        number: int

    stub = Late.__init__
    first = Late(1)

    assert Late.__init__ is not stub
    assert Late.__init__.__qualname__.endswith("Late.__init__")
    assert {first, Late(1)} == {Late(1)}


def test_threads_may_be_the_first_together() -> None:
    @value_class.dataclass(frozen=True, slots=True, kw_only=True)
    class Late:
        number: int

    made: list[Late] = []
    start = threading.Barrier(8)

    def make(number: int) -> None:
        start.wait()
        made.append(Late(number=number))

    threads = [threading.Thread(target=make, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert {late.number for late in made} == set(range(8))
    assert len(set(made)) == 8


def test_the_definition_of_a_class_does_not_load_the_standard_librarys() -> None:
    program = (
        "import sys; from cordwood.log.store import store; print('dataclasses' in sys.modules)"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert done.stdout == "False\n"
