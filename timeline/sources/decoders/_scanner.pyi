from collections.abc import Sequence

Scanned = tuple[
    int, list[bytes], list[bytes], int, list[bytes], list[tuple[int, bytes, bytes]], int, int
]

class Scanner:
    def __init__(
        self,
        keys: Sequence[bytes],
        first_loose: int,
        first_raw: int,
        counters: bool,
        instants: bool,
        whole_args: bool,
    ) -> None: ...
    def scan(self, text: bytes, /) -> Scanned: ...
    def take(self) -> list[bytes]: ...
    def undo(self) -> None: ...
