"""The names behind string ids and enumeration values of a profile database."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from timeline.columns.columns import Codes, Int64
from timeline.columns.distinct import distinct, map_values
from timeline.columns.strings import StringPool
from timeline.records.joining import NO_VALUE
from timeline.records.not_given import NO_ID
from timeline.sources.decoders.sqlite import Database


class DatabaseNames:
    """The names of one database, and the pool that holds those in use."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.strings = StringPool()
        self.by_id: dict[int, str] = {}
        if database.has("STRING_IDS", "id", "value"):
            self.by_id = database.texts_by_id("STRING_IDS", "id", "value")

    def codes(self, ids: Int64) -> Codes:
        """The pool's codes of string ids; an id without a string is shown as its number."""
        return self._codes_of(ids, self.by_id)

    def shapes(self, ids: Int64) -> Codes:
        """The pool's codes of shapes, which databases hold in quotes."""
        return self._codes_of(ids, self.by_id, lambda text: text.strip('"'))

    def input_shapes(self, ids: Int64, type_ids: Int64) -> Codes:
        """The pool's codes of shapes of the framework's operators, which lines part.

        type_ids: of the column of types, into which torch_npu wrote shapes, and types into theirs.
        """
        swapped = self._have_letters(ids) and not self._have_letters(type_ids)
        shapes = type_ids if swapped else ids
        return self._codes_of(shapes, self.by_id, lambda text: "".join(text.split()))

    def _have_letters(self, ids: Int64) -> bool:
        """Whether any of these strings has a letter, as names of types have and shapes do not."""
        texts = (self.by_id.get(number, "") for number in distinct(ids).tolist())
        return any(character.isalpha() for text in texts for character in text)

    def enum(self, table: str, values: Int64) -> Codes:
        """The pool's codes of enumeration values, named by their own table."""
        return self._codes_of(values, self.enum_names(table))

    def enum_names(self, table: str) -> Mapping[int, str]:
        """The names of an enumeration by value; without one, the strings by id."""
        if not table:
            return self.by_id
        if not self._database.has(table, "id", "name"):
            return {}
        return self._database.texts_by_id(table, "id", "name")

    def numbers(self, ids: Int64) -> Codes:
        """The pool's codes of ids that are shown as they are."""
        return self._codes_of(ids, {})

    def id_of(self, text: str) -> int:
        """The id of a string, NO_ID where the database does not hold it."""
        return next((number for number, value in self.by_id.items() if value == text), NO_ID)

    def _codes_of(
        self, ids: Int64, names: Mapping[int, str], spelled: Callable[[str], str] = str
    ) -> Codes:
        def text(number: int) -> str:
            if number in names:
                return spelled(names[number])
            return "" if number in NO_VALUE else str(number)

        def codes(values: Int64) -> Codes:
            return self.strings.codes(map(text, values.tolist()))

        return map_values(ids, codes)
