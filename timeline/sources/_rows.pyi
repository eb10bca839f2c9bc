from collections.abc import Iterator
from typing import Any

def next_columns(rows: Iterator[tuple[Any, ...]], width: int, most: int, /) -> list[bytes]: ...
