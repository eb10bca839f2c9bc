"""The databases that msprof parsed for a device and its host, opened when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from timeline.errors import SourceError
from timeline.records.tables import Omission, OmissionCode
from timeline.sources.common.losses import counted_losses
from timeline.sources.decoders.sqlite import Database, open_database
from timeline.sources.decoders.sqlite_loose import LooseTable
from timeline.sources.msprof_sqlite.format import TASKS


class ParsedDatabases:
    """The databases of one device and of its host, each opened when it is asked for first."""

    def __init__(self, device: Path, host: Path, stack: ExitStack) -> None:
        self.device, self.host, self._stack = device, host, stack
        self._opened: dict[Path, Database | None] = {}
        self._tables: list[tuple[Path, LooseTable]] = []

    def device_table(self, file: str, *names: str) -> LooseTable:
        """The first of the tables that is there: versions name some of them differently.

        Raises:
            SourceError: the file is no SQLite database.
        """
        return self._table(self.device / file, names, None)

    def host_table(
        self, file: str, *names: str, where: Mapping[str, int] | None = None
    ) -> LooseTable:
        """The first of the host's tables that is there, only rows that hold these numbers.

        Raises:
            SourceError: the file is no SQLite database.
        """
        return self._table(self.host / file, names, where)

    def _table(
        self, path: Path, names: tuple[str, ...], where: Mapping[str, int] | None
    ) -> LooseTable:
        if path not in self._opened:
            # msprof makes the files first, so one of zero bytes is a table that it had no rows for.
            there = path.is_file() and (path.name == TASKS or path.stat().st_size > 0)
            self._opened[path] = self._stack.enter_context(open_database(path)) if there else None
        database = self._opened[path]
        present = [name for name in names if database is not None and database.has(name)]
        table = LooseTable(database, present[0] if present else names[0], where)
        self._tables.append((path, table))
        return table

    def omissions(self, rank: int) -> Iterator[Omission]:
        """What of the tables read so far was damaged, or no number where one belongs."""
        for database in self._opened.values():
            if database is not None:
                yield from database.damage.omissions(rank)
        for path, table in self._tables:
            cells = {
                f"{path.name}: cells of {table.name}.{column} that hold no number": count
                for column, count in table.unreadable.items()
            }
            yield from counted_losses(cells, rank, OmissionCode.DAMAGED)


@contextmanager
def open_parsed_databases(device: Path, host: Path) -> Iterator[ParsedDatabases]:
    """Open the databases below two directories as they are needed.

    Raises:
        SourceError: the device has none.
    """
    if not device.is_dir():
        raise SourceError(device, "is no directory of databases.")
    with ExitStack() as stack:
        yield ParsedDatabases(device, host, stack)
