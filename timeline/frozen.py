"""Frozen dataclasses whose methods are written when somebody asks for them.

The standard library writes and compiles six methods of each frozen dataclass where it is declared,
which takes 0.3 to 0.4 ms (Python 3.11). A small command declares 300 and makes instances of some:
it would spend a quarter of its time on methods that nobody calls. The first few instances of each
are filled without a method, since most have no more.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, FrozenInstanceError
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, Any

__all__ = ["FEW_INSTANCES", "dataclass"]

FEW_INSTANCES = 32
"""To fill so many field by field takes less than to write a method that does."""
_UNDERSTOOD = {"repr", "eq", "kw_only", "slots"}
"""Options of frozen dataclasses that are understood here; with others the library makes them."""

if TYPE_CHECKING:
    from dataclasses import dataclass  # to type checkers they are those of the standard library
else:

    def dataclass(kind=None, /, *, frozen=False, **options):
        """Declare a dataclass, as the decorator of the standard library does."""
        if not frozen or not options.keys() <= _UNDERSTOOD:
            return dataclasses.dataclass(kind, frozen=frozen, **options)

        return partial(_declare, **options) if kind is None else _declare(kind, **options)


def _declare(
    kind: type,
    *,
    repr: bool = True,  # noqa: A002 - the library's own word
    eq: bool = True,
    kw_only: bool = False,
    slots: bool = False,
) -> type:
    """Note the fields of a class and give it methods that are written when they are asked for."""
    with _as_if_not_frozen(kind):
        kind = dataclasses.dataclass(
            init=False, repr=False, eq=False, kw_only=kw_only, slots=slots
        )(kind)
    kind.__dataclass_params__.frozen = True  # type: ignore[attr-defined]
    names = ["__init__", *(["__repr__"] if repr else []), *(["__eq__", "__hash__"] if eq else [])]
    written = {"__init__": _InitWrittenLate}
    methods = {
        name: written.get(name, _WrittenLate)(kind, name)
        for name in names
        if name not in vars(kind)
    }
    for name, method in {**methods, **_REFUSALS, **(_STATE if slots else {})}.items():
        setattr(kind, name, method)
    return kind


@contextlib.contextmanager
def _as_if_not_frozen(kind: type) -> Iterator[None]:
    """Have the library declare a class that is frozen afterwards, whatever it is derived from."""
    bases = [vars(base).get("__dataclass_params__") for base in kind.__mro__[1:]]
    frozen = [base for base in bases if base is not None and base.frozen]
    for base in frozen:
        base.frozen = False
    try:
        yield
    finally:
        for base in frozen:
            base.frozen = True


class _WrittenLate:
    """Stands for a method of a class until somebody asks for it."""

    def __init__(self, kind: type, name: str) -> None:
        self._kind, self._name = kind, name

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self._written().__get__(instance, owner)

    def _written(self) -> FunctionType:
        method = _write(self._kind, self._name)
        setattr(self._kind, self._name, method)
        return method


class _InitWrittenLate(_WrittenLate):
    """Stands for `__init__`, and does its work for the first few instances."""

    _instances = 0

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        if instance is None or self._instances >= FEW_INSTANCES:
            return super().__get__(instance, owner)
        self._instances += 1
        return partial(self._fill, instance)

    def _fill(self, instance: Any, /, *in_order: Any, **by_name: Any) -> None:
        fields = dataclasses.fields(self._kind)
        taken = [one for one in fields if one.init]
        names = [one.name for one in taken if not one.kw_only]
        values = {**dict(zip(names, in_order, strict=False)), **by_name}
        if (
            len(values) < len(in_order) + len(by_name)
            or not values.keys() <= {one.name for one in taken}
            or any(one.name not in values and _has_no_default(one) for one in taken)
        ):
            self._written()(instance, *in_order, **by_name)  # which says what is wrong
            return
        for one in fields:
            if one.name in values:
                value = values[one.name]
            elif one.default_factory is not MISSING:
                value = one.default_factory()
            elif one.default is not MISSING:
                value = one.default
            else:
                continue
            object.__setattr__(instance, one.name, value)
        if hasattr(self._kind, "__post_init__"):
            instance.__post_init__()


def _has_no_default(one: Field[Any]) -> bool:
    return one.default is MISSING and one.default_factory is MISSING


class _Factory:
    """Stands for an argument that is not given and whose value a function makes."""

    def __repr__(self) -> str:
        return "<factory>"


def _write(kind: type, name: str) -> FunctionType:
    """Write and compile a method, in the words of the standard library."""
    fields = dataclasses.fields(kind)
    match name:
        case "__init__":
            return _write_init(kind, fields)
        case "__repr__":
            said = ", ".join(f"{one.name}={{self.{one.name}!r}}" for one in fields if one.repr)
            head, body = "self", [f'return f"{{type(self).__qualname__}}({said})"']
        case "__eq__":
            head, body = (
                "self, other",
                [
                    "if other.__class__ is not self.__class__: return NotImplemented",
                    f"return {_compared('self', fields)} == {_compared('other', fields)}",
                ],
            )
        case _:
            head, body = "self", [f"return hash({_compared('self', fields)})"]
    return _compile(kind, name, head, body, {})


def _write_init(kind: type, fields: tuple[Field[Any], ...]) -> FunctionType:
    known: dict[str, Any] = {"_set": object.__setattr__, "_factory": _Factory()}
    in_order: list[str] = []
    by_name: list[str] = []
    body: list[str] = []
    for one in fields:
        value = argument = one.name
        if one.default_factory is not MISSING:
            known[f"_make_{one.name}"] = one.default_factory
            argument = f"{one.name}=_factory"
            value = f"_make_{one.name}()"
            if one.init:
                value = f"{value} if {one.name} is _factory else {one.name}"
        elif one.default is not MISSING:
            known[f"_default_{one.name}"] = one.default
            argument = f"{one.name}=_default_{one.name}"
            value = one.name if one.init else f"_default_{one.name}"
        if one.init:
            (by_name if one.kw_only else in_order).append(argument)
        if one.init or value != one.name:
            body.append(f'_set(self, "{one.name}", {value})')
    if hasattr(kind, "__post_init__"):
        body.append("self.__post_init__()")
    head = ", ".join(["self", *in_order, *(["*", *by_name] if by_name else [])])
    method = _compile(kind, "__init__", head, body or ["pass"], known)
    method.__annotations__ = {one.name: one.type for one in fields if one.init} | {"return": None}
    return method


def _compared(whose: str, fields: tuple[Field[Any], ...]) -> str:
    values = "".join(f"{whose}.{one.name}, " for one in fields if one.compare)
    return f"({values})"


def _compile(
    kind: type, name: str, head: str, body: list[str], known: dict[str, Any]
) -> FunctionType:
    text = "\n ".join([f"def {name}({head}):", *body])
    exec(text, known)
    method: FunctionType = known[name]
    method.__qualname__ = f"{kind.__qualname__}.{name}"
    method.__module__ = kind.__module__
    return method


def _refuse_to_set(self: object, name: str, value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: object, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _state_of(self: Any) -> list[Any]:
    return [getattr(self, one.name) for one in dataclasses.fields(self)]


def _put_state(self: Any, state: list[Any]) -> None:
    for one, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, one.name, value)


_REFUSALS: dict[str, Callable[..., Any]] = {
    "__setattr__": _refuse_to_set,
    "__delattr__": _refuse_to_delete,
}
_STATE: dict[str, Callable[..., Any]] = {"__getstate__": _state_of, "__setstate__": _put_state}
"""How those with slots are copied and sent, which cannot be set one by one."""
