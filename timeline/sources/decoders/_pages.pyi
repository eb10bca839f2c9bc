from collections.abc import Callable, Sequence

class Table: ...

AS_NUMBER: int
AS_TEXT_TOO: int
AS_ROW: int
MOST_COLUMNS: int

def table(
    read: Callable[[int, int], bytes],
    root: int,
    pages: int,
    page_bytes: int,
    usable_bytes: int,
    width: int,
    reals: bool,
    columns: Sequence[tuple[int, int, int]],
    /,
) -> Table: ...
def next_rows(table: Table, most: int, /) -> tuple[bytes, int] | None: ...
