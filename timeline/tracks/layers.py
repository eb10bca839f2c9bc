"""The layers of a picture in order of importance, and the layer of each track."""

from __future__ import annotations

from timeline.tracks.model import (
    Samples,
    Schema,
    Slices,
    Track,
)

__all__ = ["COUNTERS", "IMPORTANCE", "NOUNS", "LayerKey", "layer_of"]

COUNTERS = "counters"
LayerKey = str
IMPORTANCE: tuple[LayerKey, ...] = (
    Schema.NOTE.value,
    Schema.STEP.value,
    Schema.OVERLAP.value,
    Schema.COMMUNICATION_OP.value,
    Schema.TASK.value,
    Schema.HCCL_TASK.value,
    Schema.HOST_CALL.value,
    Schema.SCOPE.value,
    COUNTERS,
)
"""Layers, the most important first: these are refined first and coarsened last."""


def layer_of(track: Track) -> LayerKey | None:
    """The layer whose resolution a track has; None for a row that only holds others."""
    if isinstance(track.content, Slices):
        return track.content.schema.value
    return COUNTERS if isinstance(track.content, Samples) else None


NOUNS = {
    Schema.STEP: "steps",
    Schema.OVERLAP: "pieces",
    Schema.TASK: "tasks",
    Schema.HCCL_TASK: "tasks",
    Schema.COMMUNICATION_OP: "ops",
    Schema.HOST_CALL: "calls",
    Schema.SCOPE: "scopes",
    Schema.NOTE: "notes",
}
