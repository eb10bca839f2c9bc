"""Declarations of options: each option is declared once, at the field that holds its value.

They are named tuples, which are created faster than dataclasses and so keep `--help` fast.
"""

from __future__ import annotations

import enum
import functools
import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, fields, is_dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar, cast

from timeline.errors import TimelineError, UsageError, did_you_mean
from timeline.language import spoken, spoken_language

_METADATA = "option"


class Group(enum.Enum):
    """The headings of the help, in order."""

    SELECT = "select (ids: 0,2-5 or all; ranges include both ends)"
    CLOCK = "clock"
    DRAW = "draw"
    OUTPUT = "output"
    VIEW = "view"
    REPORT = "report"
    WORK = "work"
    PRINT = "print"


class Completion(NamedTuple):
    """Completion of an option's value by a shell, to anything but files.

    words: possible values with explanations. separated: whether the value is a comma-separated list
    of words. directories: complete names of directories instead of words.
    """

    words: Mapping[str, str] = MappingProxyType({})
    separated: bool = False
    directories: bool = False


NO_COMPLETION = Completion()


class InCompare(NamedTuple):
    """The help and heading of an option in `tlexport compare`, if they differ."""

    help: str = ""
    group: Group | None = None


class Option(NamedTuple):
    """An option of the command, and the keyword of the library that has the same name.

    flags: as typed; the last one names the keyword. default: of flag and keyword; True or False
    makes a switch. read: converts the keyword's value into the field's; raises UsageError. choices:
    all words that the flag takes. parse: converts the flag's string into its value unless that is a
    string; raises ValueError. repeated: converts the strings of a flag that may be repeated into
    the keyword's value. format: formats the field's value as strings of the flag; None if suggested
    commands do not repeat the option. variables: environment variables that supply the value if the
    flag does not. completion: None for files. often: whether the short help shows
    it. compare: None if `tlexport compare` lacks the option.
    """

    flags: tuple[str, ...]
    group: Group
    help: str
    default: Any = None
    read: Callable[[Any], Any] = lambda value: value
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    parse: Callable[[str], Any] | None = None
    repeated: Callable[[list[str]], Any] | None = None
    format: Callable[[Any], Iterable[str]] | None = None
    variables: tuple[str, ...] = ()
    completion: Completion | None = None
    often: bool = False
    compare: InCompare | None = InCompare()

    @property
    def keyword(self) -> str:
        """Return the name of the keyword in Python."""
        return self.flags[-1].removeprefix("--").replace("-", "_")

    @property
    def flag_default(self) -> Any:
        """Return the parsed value if the flag is missing; None if it is determined later."""
        return None if self.variables or self.repeated else self.default

    def keyword_value(self, parsed: Any) -> Any:
        """Return the value of the keyword for a parsed value of the flag."""
        if self.repeated is not None:
            return None if parsed is None else self.repeated(parsed)
        if self.variables and not parsed:
            return next(filter(None, map(os.environ.get, self.variables)), self.default)
        return parsed


def option(*flags: str, group: Group, help: str, **more: Any) -> Any:  # noqa: A002
    """Declare a field of a dataclass as the value of an option; `more` as for `Option`."""
    declared = Option(flags, group, help, **more)
    return field(
        default_factory=functools.partial(declared.read, declared.default),
        metadata={_METADATA: declared},
    )


def options_in(declaring: type) -> Iterator[Option]:
    """Iterate over the options that a dataclass and its nested dataclasses declare, in order."""
    for one in fields(declaring):
        if _METADATA in one.metadata:
            yield one.metadata[_METADATA]
        elif is_dataclass(one.default_factory):
            yield from options_in(cast(type, one.default_factory))


_Options = TypeVar("_Options")


def fill(declaring: type[_Options], keywords: Mapping[str, object]) -> _Options:
    """Create a dataclass of options from keywords; missing ones have their defaults.

    Raises:
        UsageError: a value is invalid.
    """
    values: dict[str, Any] = {}
    for one in fields(cast(Any, declaring)):
        declared: Option | None = one.metadata.get(_METADATA)
        if declared is not None and declared.keyword in keywords:
            values[one.name] = declared.read(keywords[declared.keyword])
        elif is_dataclass(one.default_factory):
            values[one.name] = fill(cast(type, one.default_factory), keywords)
    return declaring(**values)


def format_flags(options: object) -> list[str]:
    """Return the command-line words that set a dataclass's non-empty options with `format`."""
    words = list[str]()
    for one in fields(cast(Any, options)):
        value = getattr(options, one.name)
        declared: Option | None = one.metadata.get(_METADATA)
        if declared is None:
            words += format_flags(value) if is_dataclass(value) else []
        elif declared.format is not None and value:
            flag = declared.flags[-1]
            words += [word for text in declared.format(value) for word in (flag, text)]
    return words


_Function = TypeVar("_Function", bound=Callable[..., Any])


def with_keywords(keywords: type, *declaring: type) -> Callable[[_Function], _Function]:
    """Decorate a function with `**Unpack[keywords]`: list its keywords in the signature.

    The function still receives only the keywords that were passed. Its errors name keywords instead
    of flags.

    keywords: a TypedDict. declaring: dataclasses of options, which determine the order and defaults
    in the signature; other keywords follow, with the default None.
    """
    annotations = {name: one.__forward_arg__ for name, one in keywords.__annotations__.items()}
    declared = [one for each in declaring for one in options_in(each)]
    defaults = {one.keyword: one.default for one in declared if one.keyword in annotations}
    defaults |= {name: None for name in annotations if name not in defaults}

    def decorate(function: _Function) -> _Function:
        plain = inspect.signature(function)
        signature = plain.replace(
            parameters=[
                *(
                    one
                    for one in plain.parameters.values()
                    if one.kind is not inspect.Parameter.VAR_KEYWORD
                ),
                *(
                    inspect.Parameter(
                        name,
                        inspect.Parameter.KEYWORD_ONLY,
                        default=default,
                        annotation=annotations[name],
                    )
                    for name, default in defaults.items()
                ),
            ]
        )

        @functools.wraps(function)
        def call(*args: Any, **passed: Any) -> Any:
            for name in passed:
                if name not in signature.parameters:
                    raise TypeError(
                        f"{function.__name__}() got an unexpected keyword argument {name!r}"
                        f"{did_you_mean(name, signature.parameters)}"
                    )
            try:
                signature.bind(*args, **passed)
            except TypeError as error:
                raise TypeError(f"{function.__name__}() {error}") from None
            try:
                with spoken(passed.get("lang") or spoken_language()):
                    return function(*args, **passed)
            except TimelineError as error:
                error.say_in_python()
                raise

        cast(Any, call).__signature__ = signature
        return cast(_Function, call)

    return decorate


_Choice = TypeVar("_Choice", bound=enum.Enum)


def member_of(choices: type[_Choice], name: str) -> Callable[[_Choice | str], _Choice]:
    """Return a function that converts a member of an enum, or its value, into the member.

    name: name of the option, for the UsageError about an unknown value.
    """

    def read(value: _Choice | str) -> _Choice:
        try:
            return choices(value)
        except ValueError:
            values = ", ".join(str(choice.value) for choice in choices)
            raise UsageError(
                f"{name}: there is no {value!r}.", do=f"Use one of {values}."
            ) from None

    return read
