"""Frozen dataclasses whose methods are written late are those of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from dataclasses import FrozenInstanceError, dataclass, field
from types import FunctionType
from typing import Any

import pytest

from tests.support.places import ROOT
from timeline.frozen import FEW_INSTANCES
from timeline.frozen import dataclass as dataclass_written_late


@dataclass(frozen=True)
class Early:
    """Made by the standard library."""

    rank: int
    name: str = "none"
    steps: list[int] = field(default_factory=list)
    number: int = field(default=7, compare=False, repr=False)
    told: bool = field(default=True, kw_only=True)


@dataclass_written_late(frozen=True)
class Late:
    """The same, with methods that are written when they are called."""

    rank: int
    name: str = "none"
    steps: list[int] = field(default_factory=list)
    number: int = field(default=7, compare=False, repr=False)
    told: bool = field(default=True, kw_only=True)


@dataclass_written_late(frozen=True)
class Later(Late):
    """One with a field more, that checks itself."""

    last: str = ""

    def __post_init__(self) -> None:
        if self.rank < 0:
            raise ValueError(self.rank)


@dataclass_written_late(frozen=True, slots=True)
class Slotted:
    """Without a dict in each instance."""

    rank: int
    steps: list[int] = field(default_factory=list)


@dataclass_written_late(frozen=True)
class Unused:
    """Of which nothing is ever called but what a test calls."""

    rank: int
    name: str = ""


CALLS: tuple[tuple[tuple[Any, ...], dict[str, Any]], ...] = (
    ((3,), {}),
    ((3, "a", [1]), {}),
    ((3,), {"name": "a", "steps": [2], "number": 9, "told": False}),
    ((), {"rank": 5}),
)


WRONG_CALLS: tuple[tuple[tuple[Any, ...], dict[str, Any]], ...] = (
    ((), {}),
    ((1, 2, 3, 4, 5), {}),
    ((1,), {"rank": 1}),
    ((1,), {"no": 1}),
)


@pytest.mark.parametrize(("args", "keywords"), CALLS)
def test_instances_are_as_those_of_the_library(
    args: tuple[Any, ...], keywords: dict[str, Any]
) -> None:
    early, late = Early(*args, **keywords), Late(*args, **keywords)
    assert dataclasses.asdict(late) == dataclasses.asdict(early)
    assert repr(late) == repr(early).replace("Early", "Late")
    assert late == Late(*args, **keywords)
    assert (late == early) is False  # type: ignore[comparison-overlap]
    assert dataclasses.replace(late, rank=8) == dataclasses.replace(late, rank=8, number=1)
    assert pickle.loads(pickle.dumps(late)) == late == copy.deepcopy(late)
    assert Late.__match_args__ == Early.__match_args__


@pytest.mark.parametrize(("args", "keywords"), WRONG_CALLS)
def test_wrong_calls_are_refused_in_the_same_words(
    args: tuple[Any, ...], keywords: dict[str, Any]
) -> None:
    with pytest.raises(TypeError) as early:
        Early(*args, **keywords)
    with pytest.raises(TypeError) as late:
        Late(*args, **keywords)
    assert str(late.value) == str(early.value).replace("Early", "Late")


def test_they_are_called_in_the_same_way() -> None:
    assert str(inspect.signature(Late)) == str(inspect.signature(Early))


def test_hashes_are_of_what_is_compared() -> None:
    one, same = Unused(1, "a"), Unused(1, "a")
    assert hash(one) == hash(same) == hash((1, "a"))
    assert len({one, same, Unused(2)}) == 2
    with pytest.raises(TypeError, match="unhashable"):
        hash(Late(1))


def test_nothing_can_be_set_or_deleted() -> None:
    late = Late(1)
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'rank'"):
        late.rank = 2  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'rank'"):
        del late.rank


def test_subclasses_take_all_fields_and_check_themselves() -> None:
    later = Later(2, "b", last="c")
    assert (later.rank, later.name, later.steps, later.last) == (2, "b", [], "c")
    assert later != Late(2, "b")
    with pytest.raises(ValueError, match="-1"):
        Later(-1)


def test_they_are_derived_from_as_those_of_the_library() -> None:
    """Who extends the library in their own code uses the decorator of the standard library."""

    @dataclass(frozen=True)
    class Derived(Late):
        further: int = 0

    made = Derived(3, further=4)
    assert (made.rank, made.name, made.further) == (3, "none", 4)
    assert made == dataclasses.replace(Derived(1), rank=3, further=4)
    with pytest.raises(FrozenInstanceError):
        made.rank = 5  # type: ignore[misc]
    with pytest.raises(TypeError, match="cannot inherit non-frozen dataclass from a frozen one"):
        dataclass(type("Thawed", (Late,), {}))


def test_those_with_slots_are_copied_and_sent() -> None:
    slotted = Slotted(3, [1])
    assert not hasattr(slotted, "__dict__")
    assert pickle.loads(pickle.dumps(slotted)) == slotted == copy.copy(slotted)
    assert dataclasses.replace(slotted, rank=4) == Slotted(4, [1])
    with pytest.raises(FrozenInstanceError):
        slotted.rank = 2  # type: ignore[misc]


def test_each_instance_has_a_default_of_its_own() -> None:
    Late(1).steps.append(3)
    assert Late(1).steps == []


def test_methods_of_the_class_itself_stay() -> None:
    @dataclass_written_late(frozen=True)
    class Told:
        rank: int

        def __repr__(self) -> str:
            return "told"

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 1

    assert repr(Told(3)) == "told"
    assert Told(3) == Told(4)
    assert hash(Told(3)) == 1


def test_methods_are_written_when_they_are_called() -> None:
    @dataclass_written_late(frozen=True)
    class Waiting:
        rank: int

    first = Waiting(1)
    untouched = vars(Waiting)["__repr__"]
    repr(first)
    assert vars(Waiting)["__repr__"] is not untouched


@pytest.mark.parametrize(("args", "keywords"), [*CALLS, *WRONG_CALLS, ((-1,), {})])
def test_the_first_instances_are_as_those_that_a_method_fills(
    args: tuple[Any, ...], keywords: dict[str, Any]
) -> None:
    @dataclass_written_late(frozen=True)
    class Checked(Late):
        seen: list[int] = field(default_factory=list, init=False)
        told_last: str = field(default="", init=False)

        def __post_init__(self) -> None:
            if self.rank < 0:
                raise ValueError(self.rank)
            self.seen.append(self.rank)

    def outcome() -> object:
        try:
            return vars(Checked(*args, **keywords))
        except (TypeError, ValueError) as error:
            return type(error), str(error)

    filled = outcome()
    for _ in range(FEW_INSTANCES):
        assert vars(Checked(rank=2))["seen"] == [2]
    assert isinstance(vars(Checked)["__init__"], FunctionType)
    assert outcome() == filled


def test_instances_that_never_were_made_here_compare() -> None:
    @dataclass_written_late(frozen=True)
    class Sent:
        rank: int

    one, other = (object.__new__(Sent) for _ in range(2))
    for sent in (one, other):
        vars(sent)["rank"] = 4
    assert one == other
    assert dataclasses.replace(one, rank=5).rank == 5


def test_every_frozen_dataclass_is_written_late() -> None:
    modules = [
        path
        for path in (ROOT / "timeline").rglob("*.py")
        if "@dataclass(frozen=True" in path.read_text("utf-8")
    ]
    assert len(modules) > 100
    early = [path for path in modules if "import dataclass\n" not in path.read_text("utf-8")]
    assert early == []
