"""The files of a profile that is changed and run: which input it is, and whether it stays so."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.promises import BrokenPromise

KEY_BYTES = 8
"""Of two million inputs that differ, two have the same key with a chance of one in ten million."""
MOST_WAITING = 256


@dataclass(frozen=True)
class _File:
    content: bytes
    digest: bytes

    @classmethod
    def of(cls, content: bytes) -> _File:
        return cls(content, hashlib.sha256(content).digest())


class InputTree:
    """A directory of files that are changed and put back; only what changed is read again."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._files = {
            path: _File.of(path.read_bytes()) for path in sorted(root.rglob("*")) if path.is_file()
        }

    @property
    def paths(self) -> list[Path]:
        """All files, by name."""
        return list(self._files)

    def content(self, path: Path) -> bytes:
        """What a file holds as it was first."""
        return self._files[path].content

    def key(self, changed: Mapping[Path, bytes]) -> int:
        """A number for the input with some files changed; others have another one."""
        digest = hashlib.sha256()
        for path, file in self._files.items():
            digest.update(f"{path.relative_to(self._root)}\0".encode(errors="surrogateescape"))
            its = file.digest
            if path in changed:
                its = hashlib.sha256(changed[path]).digest()
            digest.update(its)
        return int.from_bytes(digest.digest()[:KEY_BYTES], "little")

    @contextmanager
    def holding(self, changed: Mapping[Path, bytes]) -> Iterator[None]:
        """While it is open some files are changed.

        Raises:
            BrokenPromise: at the end it is not as it was when it was opened.
        """
        try:
            for path, content in changed.items():
                path.write_bytes(content)
            before = self._signatures()
            yield
            # What is written to has another time then; of what matters most the content is read.
            same = self._signatures() == before
            if not same or any(path.read_bytes() != held for path, held in changed.items()):
                raise BrokenPromise("the input is not what it was")
        finally:
            for path in changed:
                path.write_bytes(self._files[path].content)

    def _signatures(self) -> dict[str, tuple[int, int, int]]:
        found: dict[str, tuple[int, int, int]] = {}
        for directory, _, names in os.walk(self._root):
            for name in names:
                path = os.path.join(directory, name)  # noqa: PTH118 - twice as fast, every run
                status = os.stat(path)  # noqa: PTH116
                found[path] = (status.st_ino, status.st_size, status.st_mtime_ns)
        return found


class SeenInputs:
    """The keys of all inputs that were run, in a file that several processes may add to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        known = path.read_bytes() if path.exists() else b""
        self._keys = {
            int.from_bytes(known[at : at + KEY_BYTES], "little")
            for at in range(0, len(known), KEY_BYTES)
        }
        self._waiting = bytearray()

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, key: int) -> bool:
        """Note an input; False if it was there."""
        if key in self._keys:
            return False
        self._keys.add(key)
        self._waiting += key.to_bytes(KEY_BYTES, "little")
        if len(self._waiting) >= MOST_WAITING * KEY_BYTES:
            self.keep()
        return True

    def keep(self) -> None:
        """Write down what was noted since."""
        with self._path.open("ab", buffering=0) as file:
            file.write(self._waiting)
        self._waiting.clear()
