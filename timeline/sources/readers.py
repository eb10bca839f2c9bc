"""Turns a capture into the source that reads its layout."""

from __future__ import annotations

from timeline.errors import NoProfileError
from timeline.sources.base import Clock, Identity, Source
from timeline.sources.database_source import DatabaseSource
from timeline.sources.kineto_source import KinetoSource
from timeline.sources.layouts import Capture, Layout
from timeline.sources.mindspore_raw import MindSporeRawSource
from timeline.sources.mindspore_text import MindSporeTextSource
from timeline.sources.parsed_source import ParsedSource
from timeline.sources.raw_source import RawSlicesSource
from timeline.sources.table_source import KernelTableSource
from timeline.sources.trace_sources import (
    GraphTimelineSource,
    MindStudioSource,
    RawSource,
    TraceViewSource,
)

__all__ = ["nothing_in", "source_of"]


def source_of(capture: Capture, identity: Identity, clock: Clock, several: bool) -> Source:
    """What reads a capture; several: whether it holds more than one device."""
    match capture.layout:
        case Layout.DATABASE:
            return DatabaseSource(identity, clock, capture.content, several)
        case Layout.TRACE_VIEW:
            return TraceViewSource(identity, clock, capture.content)
        case Layout.MINDSTUDIO:
            return MindStudioSource(identity, clock, capture.content, several)
        case Layout.GRAPH_TIMELINE:
            return GraphTimelineSource(identity, clock, capture.content)
        case Layout.RAW:
            return RawSource(identity, clock)
        case Layout.RAW_SLICES:
            return RawSlicesSource(identity, clock, capture.content)
        case Layout.PARSED:
            return ParsedSource(identity, clock, capture.content)
        case Layout.KERNEL_TABLE:
            return KernelTableSource(identity, clock, capture.content, several)
        case Layout.KINETO:
            return KinetoSource(identity, clock, capture.content)
        case Layout.TEXT:
            assert capture.device is not None
            return MindSporeTextSource(identity, clock, capture.content, capture.device)
        case Layout.HARDWARE_LOG:
            assert capture.device is not None
            return MindSporeRawSource(identity, clock, capture.content, capture.device)
        case Layout.EMPTY:
            raise nothing_in(capture)


def nothing_in(capture: Capture) -> NoProfileError:
    return NoProfileError(
        capture.directory,
        f"holds nothing that can be read in {capture.content.name}.",
        do="Parse the profile again, or copy all of it.",
    )
