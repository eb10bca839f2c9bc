"""Makes an input smaller that still shows the same fault."""

from __future__ import annotations

import re

from tests.fuzz.target import Still

_LINES = re.compile(rb"[^\n]*\n|[^\n]+")
_OBJECTS = re.compile(rb"\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}\s*,?\s*|[^{]+|\{")
_PAIRS = re.compile(
    rb'"(?:[^"\\]|\\.)*"\s*:\s*(?:"(?:[^"\\]|\\.)*"|[^\s,{}\[\]"]+|\{[^{}]*\})\s*,?\s*|.', re.DOTALL
)
_TOKENS = re.compile(rb'"(?:[^"\\]|\\.)*"|[\w.+-]+|\s+|.', re.DOTALL)


def shrink_text(data: bytes, still: Still) -> bytes:
    """Leave out lines, then objects, pairs, tokens and bytes, as long as the fault stays."""
    for split in (_LINES.findall, _OBJECTS.findall, _PAIRS.findall, _TOKENS.findall, _bytes):
        pieces = split(data)
        data = b"".join(_fewer(pieces, still))
    return data


def _bytes(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


def _fewer(pieces: list[bytes], still: Still) -> list[bytes]:
    """Leave out runs of pieces, long ones first, until no single one can go."""
    run = max(1, len(pieces) // 2)
    while True:
        at, went = 0, False
        while at < len(pieces):
            fewer = pieces[:at] + pieces[at + run :]
            if still(b"".join(fewer)):
                pieces, went = fewer, True
            else:
                at += run
        if run == 1 and not went:
            return pieces
        run = max(1, run // 2)
