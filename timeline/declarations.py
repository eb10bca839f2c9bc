"""Declarations of options: each is made once, at the field that holds its value.

They are named tuples, which are created faster than dataclasses: `--help` waits for them.
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

_METADATA = "option"


class Group(enum.Enum):
    """The headings of the help, in their order."""

    SELECT = "select (ids: 0,2-5 or all; ranges include both ends)"
    CLOCK = "clock"
    DRAW = "draw"
    OUTPUT = "output"
    VIEW = "view"
    REPORT = "report"
    WORK = "work"
    PRINT = "print"


class Completion(NamedTuple):
    """Completion of a value by a shell, instead of files.

    words: each with its explanation. separated: several may follow each other, separated by commas.
    directories: names of directories, and no words.
    """

    words: Mapping[str, str] = MappingProxyType({})
    separated: bool = False
    directories: bool = False


NO_COMPLETION = Completion()


class InCompare(NamedTuple):
    """The help and heading of an option in `tlexport compare`, where they differ."""

    help: str = ""
    group: Group | None = None


class Option(NamedTuple):
    """An option of the command, and the keyword of the library that has the same name.

    flags: as typed; the last one names the keyword. default: of flag and keyword; True or False
    makes a switch. read: converts the keyword's value into the field's; raises UsageError. choices:
    all words that the flag takes. parse: converts the flag's text into its value unless that is a
    string; raises ValueError. repeated: converts the texts of a flag that may be repeated into the
    keyword's value. spell: formats the field's value as texts of the flag, if commands that show
    the same need it. variables: environment variables that supply the value if the flag does not.
    completion: None completes files. compare: None if `tlexport compare` lacks the option.
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
    spell: Callable[[Any], Iterable[str]] | None = None
    variables: tuple[str, ...] = ()
    completion: Completion | None = None
    compare: InCompare | None = InCompare()

    @property
    def keyword(self) -> str:
        """Return the name of the keyword in Python."""
        return self.flags[-1].removeprefix("--").replace("-", "_")

    @property
    def flag_default(self) -> Any:
        """Return the parser's value without the flag; None if the value is determined later."""
        return None if self.variables or self.repeated else self.default

    def given(self, parsed: Any) -> Any:
        """Return the value of the keyword for the value from the parser."""
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


def fill(declaring: type[_Options], given: Mapping[str, object]) -> _Options:
    """Create a dataclass of options from values of keywords; missing ones have their defaults.

    Raises:
        UsageError: a value has no meaning.
    """
    values: dict[str, Any] = {}
    for one in fields(cast(Any, declaring)):
        declared: Option | None = one.metadata.get(_METADATA)
        if declared is not None and declared.keyword in given:
            values[one.name] = declared.read(given[declared.keyword])
        elif is_dataclass(one.default_factory):
            values[one.name] = fill(cast(type, one.default_factory), given)
    return declaring(**values)


def format_flags(options: object) -> list[str]:
    """Return the command-line words that give a dataclass its values, of options with `spell`.

    Empty values need no flag.
    """
    words = list[str]()
    for one in fields(cast(Any, options)):
        value = getattr(options, one.name)
        declared: Option | None = one.metadata.get(_METADATA)
        if declared is None:
            words += format_flags(value) if is_dataclass(value) else []
        elif declared.spell is not None and value:
            words += [word for text in declared.spell(value) for word in (declared.flags[-1], text)]
    return words


_Function = TypeVar("_Function", bound=Callable[..., Any])


def with_keywords(keywords: type, *declaring: type) -> Callable[[_Function], _Function]:
    """Give a function that takes `**Unpack[keywords]` a keyword for each option, with its default.

    The function still receives only the keywords that were passed. Its errors name keywords instead
    of flags.

    keywords: a TypedDict. declaring: dataclasses of options, which give the order and the defaults
    shown; other keywords follow, with the default None.
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
        def call(*args: Any, **given: Any) -> Any:
            for name in given:
                if name not in signature.parameters:
                    raise TypeError(
                        f"{function.__name__}() got an unexpected keyword argument {name!r}"
                        f"{did_you_mean(name, signature.parameters)}"
                    )
            try:
                signature.bind(*args, **given)
            except TypeError as error:
                raise TypeError(f"{function.__name__}() {error}") from None
            try:
                return function(*args, **given)
            except TimelineError as error:
                error.say_in_python()
                raise

        cast(Any, call).__signature__ = signature
        return cast(_Function, call)

    return decorate


_Choice = TypeVar("_Choice", bound=enum.Enum)


def member_of(choices: type[_Choice], name: str) -> Callable[[_Choice | str], _Choice]:
    """Return a function that turns a member of an enum, or its value, into the member.

    name: that of the option; it begins the message of the UsageError for an unknown value.
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
