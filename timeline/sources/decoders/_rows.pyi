class Query: ...

class QueryError(Exception):
    args: tuple[int, str]

INTEGER: int
FLOAT: int

def query(database: int, text: str, /) -> Query: ...
def next_columns(query: Query, kind: int, most: int, /) -> list[bytes]: ...
