"""The names that the library offers, in the order of `timeline.__all__`."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import timeline


def members() -> Iterator[tuple[str, Any]]:
    """Every public name with what it stands for; classes with their public members."""
    for name in timeline.__all__:
        found = getattr(timeline, name)
        yield name, found
        if inspect.isclass(found) and not issubclass(found, Exception):
            own = (
                base for base in reversed(found.__mro__) if base.__module__.startswith("timeline.")
            )
            declared = {name: one for base in own for name, one in vars(base).items()}
            for member in sorted(declared):
                one = getattr(found, member)
                if member.startswith("_") or isinstance(declared[member], classmethod):
                    continue
                if callable(one) or isinstance(one, property):
                    yield f"{name}.{member}", one
