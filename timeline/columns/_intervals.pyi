_Columns = tuple[bytes, bytes]

def union(
    left_start_ns: bytes, left_end_ns: bytes, right_start_ns: bytes, right_end_ns: bytes, /
) -> _Columns | None: ...
def subtract(
    left_start_ns: bytes, left_end_ns: bytes, right_start_ns: bytes, right_end_ns: bytes, /
) -> _Columns: ...
