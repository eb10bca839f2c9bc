"""Changes of valid text that leave it nearly valid: of events, tokens, cells and bytes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random

import atheris

from tests.fuzz.words import KEYS, LONG, NUMBERS, OTHERS, STRINGS

Change = Callable[[bytes, Random], bytes]

_TOKEN = re.compile(
    rb'"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*|true|false|null|[\[\]{},:]|\s+|.', re.DOTALL
)
_NUMBER = re.compile(rb'"?-?\d[\d.eE+-]*"?')
_WHITE = (b" ", b"\n", b"\r\n", b"\t", b"\xef\xbb\xbf", b"\x00", b"\xff", b",", b"{", b"}", b"]")


def _value(random: Random) -> bytes:
    """A value of any kind."""
    kind = random.randrange(8)
    if kind < 3:
        return random.choice(NUMBERS)
    if kind < 4:
        return b'"' + random.choice(NUMBERS) + b'"'
    if kind < 7:
        return b'"' + random.choice(STRINGS) + b'"'
    if random.randrange(32) == 0:
        return random.choice(LONG)
    return random.choice(OTHERS)


# -- JSON ----------------------------------------------------------------------------------------


class _Json:
    """Changes of JSON text; events are objects right below the outermost list or object."""

    def __init__(self, events: Sequence[bytes]) -> None:
        self._events = events
        self._kinds: tuple[Callable[[list[bytes], Random], list[bytes]], ...] = (
            self._other_value,
            self._other_value,
            self._other_number,
            self._same_as_another,
            self._same_as_another,
            self._other_key,
            self._copied_event,
            self._moved_event,
            self._foreign_event,
            self._foreign_event,
            self._without_event,
            self._broken,
        )

    def change(self, data: bytes, random: Random) -> bytes:
        tokens: list[bytes] = _TOKEN.findall(data)
        if not tokens:
            return random.choice(self._events) if self._events else b"{}"
        for _ in range(random.choice((1, 1, 1, 2, 4))):
            # Without empty ones, that others left, and never without any.
            tokens = [token for token in tokens if token] or [b" "]
            tokens = random.choice(self._kinds)(tokens, random)
        return b"".join(tokens)

    @staticmethod
    def _values(tokens: list[bytes]) -> list[int]:
        return [at for at, token in enumerate(tokens) if token[0] in b'"-0123456789tfn']

    def _other_value(self, tokens: list[bytes], random: Random) -> list[bytes]:
        places = self._values(tokens)
        if places:
            tokens[random.choice(places)] = _value(random)
        return tokens

    def _other_number(self, tokens: list[bytes], random: Random) -> list[bytes]:
        """One digit more, less, or another: times stay near each other."""
        places = [at for at, token in enumerate(tokens) if _NUMBER.fullmatch(token)]
        if places:
            at = random.choice(places)
            digits = bytearray(tokens[at])
            digits[random.randrange(len(digits))] = random.choice(b"0123456789.-e")
            tokens[at] = bytes(digits)
        return tokens

    def _same_as_another(self, tokens: list[bytes], random: Random) -> list[bytes]:
        """A value as elsewhere, so that events share lanes, ids and moments."""
        places = self._values(tokens)
        if places:
            tokens[random.choice(places)] = tokens[random.choice(places)]
        return tokens

    def _other_key(self, tokens: list[bytes], random: Random) -> list[bytes]:
        places = [at for at, token in enumerate(tokens) if token == b"{"]
        if places:
            at = random.choice(places) + 1
            comma = b"," if tokens[at : at + 1] != [b"}"] else b""
            tokens[at:at] = [b'"', random.choice(KEYS), b'":', _value(random), comma]
        return tokens

    @staticmethod
    def _spans(tokens: list[bytes]) -> list[tuple[int, int]]:
        """Where events begin and end."""
        found, depth, begin = [], 0, 0
        for at, token in enumerate(tokens):
            if token == b"{":
                depth += 1
                if depth == 1:
                    begin = at
            elif token == b"}" and depth:
                depth -= 1
                if depth == 0:
                    found.append((begin, at + 1))
        return found

    def _copied_event(self, tokens: list[bytes], random: Random) -> list[bytes]:
        spans = self._spans(tokens)
        if spans:
            begin, end = random.choice(spans)
            at = random.choice(spans)[0]
            tokens[at:at] = [*tokens[begin:end], b","]
        return tokens

    def _moved_event(self, tokens: list[bytes], random: Random) -> list[bytes]:
        spans = self._spans(tokens)
        if len(spans) > 1:
            one, other = sorted(random.sample(spans, 2))
            tokens = [
                *tokens[: one[0]],
                *tokens[slice(*other)],
                *tokens[one[1] : other[0]],
                *tokens[slice(*one)],
                *tokens[other[1] :],
            ]
        return tokens

    def _foreign_event(self, tokens: list[bytes], random: Random) -> list[bytes]:
        spans = self._spans(tokens)
        if self._events:
            event = random.choice(self._events)
            if spans:
                at = random.choice(spans)[0]
                tokens[at:at] = [*_TOKEN.findall(event), b","]
            else:
                tokens = [b"[", *_TOKEN.findall(event), b"]"]
        return tokens

    def _without_event(self, tokens: list[bytes], random: Random) -> list[bytes]:
        spans = self._spans(tokens)
        if spans:
            begin, end = random.choice(spans)
            if tokens[end : end + 1] == [b","]:
                end += 1
            del tokens[begin:end]
        return tokens

    def _broken(self, tokens: list[bytes], random: Random) -> list[bytes]:
        at = random.randrange(len(tokens))
        kind = random.randrange(4)
        if kind == 0:
            return tokens[:at]
        if kind == 1:
            del tokens[at]
        elif kind == 2:
            tokens.insert(at, random.choice(_WHITE))
        else:
            tokens[at] = tokens[at][: random.randrange(len(tokens[at]) + 1)]
        return tokens


def json_change(events: Callable[[], Sequence[bytes]]) -> Change:
    """Changes of JSON text, with events to put in; now and then plain ones of bytes."""
    made: list[_Json] = []

    def change(data: bytes, random: Random) -> bytes:
        if not made:
            made.append(_Json(events()))
        if random.randrange(8) == 0:
            return bytes(atheris.Mutate(data, len(data) + 16))
        return made[0].change(data, random)

    return change


# -- tables --------------------------------------------------------------------------------------

_CELL = re.compile(rb"(,|\r?\n)")


def table_change(data: bytes, random: Random) -> bytes:
    """Changes of cells, columns and rows of a table of comma separated values."""
    if random.randrange(6) == 0:
        return bytes(atheris.Mutate(data, len(data) + 16))
    pieces = _CELL.split(data)
    for _ in range(random.choice((1, 1, 2, 4))):
        pieces = _changed_table(pieces, random)
    return b"".join(pieces)


def _changed_table(pieces: list[bytes], random: Random) -> list[bytes]:
    """Cells are at even places, what is between them at odd ones."""
    at = random.randrange(0, len(pieces), 2) if pieces else 0
    if not pieces:
        return [b"Name,Start Time(us)\n"]
    match random.randrange(9):
        case 0 | 1:
            pieces[at] = random.choice((*NUMBERS, *STRINGS, b'"', b'"a,b"', b'"a\nb"', b"\xff\xfe"))
        case 2:
            pieces[at] = pieces[random.randrange(0, len(pieces), 2)]
        case 3:
            cell = bytearray(pieces[at] or b"0")
            cell[random.randrange(len(cell))] = random.choice(b'0123456789.-e \t"')
            pieces[at] = bytes(cell)
        case 4:
            del pieces[at : at + 2]
        case 5:
            pieces[at:at] = [random.choice((*NUMBERS, *STRINGS)), random.choice((b",", b"\n"))]
        case 6:
            lines = b"".join(pieces).splitlines(keepends=True)
            line = random.choice(lines) if lines else b""
            lines.insert(random.randrange(len(lines) + 1), line)
            return _CELL.split(b"".join(lines))
        case 7:
            whole = b"".join(pieces)
            return _CELL.split(
                random.choice(
                    (
                        whole.replace(b"\n", b"\r\n"),
                        b"\xef\xbb\xbf" + whole,
                        whole[: random.randrange(len(whole) + 1)],
                        whole.replace(b",", b"\t"),
                        whole.replace(b"\n", b"\r"),
                    )
                )
            )
        case _:
            pieces[at] += random.choice(_WHITE)
    return pieces


# -- bytes ---------------------------------------------------------------------------------------


def bytes_change(data: bytes, random: Random) -> bytes:
    """Records of fixed size: fields become other numbers, pieces go, come twice or move."""
    text = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 4, 8))):
        if not text:
            return random.randbytes(64)
        at = random.randrange(len(text))
        size = random.choice((1, 2, 4, 8, 32, 64))
        kind = random.randrange(5)
        if kind < 2:
            text[at : at + size] = random.choice(
                (bytes(size), b"\xff" * size, random.randbytes(size))
            )
        elif kind == 2:
            text[at] ^= 1 << random.randrange(8)
        elif kind == 3:
            del text[at : at + size]
        else:
            other = random.randrange(len(text))
            text[at:at] = text[other : other + size]
    return bytes(text)
