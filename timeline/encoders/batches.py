"""Batches of tracks, each of which any thread or process can encode into a piece of the file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from timeline.columns.columns import Codes, Int64, Rows
from timeline.columns.strings import StringPool
from timeline.encoders.track_parts import split_track
from timeline.encoders.used_codes import UsedCodes
from timeline.layers import SIZE_LAYERS, SizeLayer, SliceKind
from timeline.tracks.model import ArgKind, Slices, Track

TEXT_SEQUENCE = 2
"""The packet sequence of the first row of what a file says of itself, of which there are few; 1
holds descriptors and file-wide facts."""
FIRST_SEQUENCE = 32
"""The packet sequence of the first track of anything else."""
BATCH_ELEMENTS = 1 << 16
"""Slices and samples of a batch, before the track that fills it: some 4 MB to send."""

_CALLS = SliceKind.HOST_CALL.value


@dataclass(frozen=True)
class TrackBatch:
    """Tracks that follow each other, with their sequences.

    What it becomes depends on nothing else, so all processes together write the file that one
    alone would. first_ns: the first moment of the file.
    """

    tracks: Sequence[tuple[int, Track]]
    first_ns: int

    def __len__(self) -> int:
        return sum(len(track.content or ()) for _, track in self.tracks)

    @property
    def slices(self) -> int:
        """How many slices it holds."""
        contents = (track.content for _, track in self.tracks)
        return sum(len(content) for content in contents if isinstance(content, Slices))

    def for_sending(self) -> TrackBatch:
        """Leave out what is not needed to encode the batch in another process."""
        every = [track.content for _, track in self.tracks if isinstance(track.content, Slices)]
        by_pool: dict[int, list[Slices]] = {}
        for slices in every:
            by_pool.setdefault(id(slices.strings), []).append(slices)
        shown = {pool: _ShownStrings.of(slices) for pool, slices in by_pool.items()}
        tracks = [(sequence, _with_shown_strings(track, shown)) for sequence, track in self.tracks]
        return replace(self, tracks=tracks)


def in_file_order(tracks: Iterable[Track]) -> list[Track]:
    """The tracks, those of host calls first, then the others by what their slices are.

    Perfetto draws an arrow from the earlier slice, and of two that begin at once from the one that
    comes first in the file: a call and its task do where host and device clocks were fitted. What
    is alike compresses best where it is together.
    """
    return sorted(tracks, key=lambda track: layer_place(track.size_layer))


def layer_place(layer: SizeLayer | None) -> tuple[bool, int]:
    """Where the tracks of a layer stand in the file."""
    return layer != _CALLS, -1 if layer is None else SIZE_LAYERS.index(layer)


def batch_tracks(
    tracks: Iterable[Track],
    first_ns: int,
    first_sequence: int = FIRST_SEQUENCE,
    least: int | None = None,
) -> Iterator[TrackBatch]:
    """Group tracks, in order and the long ones in parts.

    least: slices and samples that fill a batch; BATCH_ELEMENTS if not given.
    """
    batch: list[tuple[int, Track]] = []
    elements = 0
    parts = (part for track in tracks for part in split_track(track, least))
    for sequence, part in enumerate(parts, first_sequence):
        batch.append((sequence, part))
        elements += len(part.content or ())
        if elements >= (least or BATCH_ELEMENTS):
            yield TrackBatch(batch, first_ns)
            batch, elements = [], 0
    if batch:
        yield TrackBatch(batch, first_ns)


class _ShownStrings(StringPool):
    """The strings that tracks show, by the codes that they have among all of their rank."""

    def __init__(self, size: int, shown: Mapping[int, str]) -> None:
        """size: how many strings the rank has. shown: those of the tracks, by their codes."""
        super().__init__()
        self._size, self._shown = size, shown

    @classmethod
    def of(cls, every: Sequence[Slices]) -> _ShownStrings:
        """The strings that slices show, which have one pool."""
        columns = [slices.name for slices in every] + [
            arg.values for slices in every for arg in slices.args if arg.kind is ArgKind.NAME
        ]
        shown = UsedCodes.of((values, None) for values in columns).codes
        strings = every[0].strings
        return cls(len(strings), dict(zip(shown.tolist(), strings.texts(shown), strict=True)))

    def __reduce__(self) -> tuple[type[_ShownStrings], tuple[int, Mapping[int, str]]]:
        return _ShownStrings, (self._size, self._shown)

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, code: int) -> str:
        return self._shown[code]

    def texts(self, codes: Codes | Int64 | Rows) -> list[str]:
        """The string of each of many codes."""
        return list(map(self._shown.__getitem__, codes.tolist()))


def _with_shown_strings(track: Track, shown: Mapping[int, StringPool]) -> Track:
    """Leave out the strings that are not shown, given those that are by pool."""
    if not isinstance(track.content, Slices):
        return track
    strings = shown[id(track.content.strings)]
    return replace(
        track, content=replace(track.content, strings=strings, coarse=None), description=""
    )
