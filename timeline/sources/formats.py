"""Turns a capture into the source that reads its layout.

Each reader is imported where it is needed: of a dozen, a profile needs one.
"""

from __future__ import annotations

from dataclasses import replace

from timeline.errors import NoProfileError
from timeline.sources.kineto.header import host_of
from timeline.sources.source import Capture, Clock, Identity, Layout, Source

__all__ = ["nothing_in", "source_of"]


def source_of(capture: Capture, identity: Identity, clock: Clock, several: bool) -> Source:
    """What reads a capture; several: whether it holds more than one device."""
    match capture.layout:
        case Layout.DATABASE:
            from timeline.sources.database.source import DatabaseSource

            return DatabaseSource(identity, clock, capture.database, several)
        case Layout.TRACE_VIEW | Layout.MINDSTUDIO | Layout.GRAPH_TIMELINE | Layout.RAW:
            return _exported(capture, identity, clock, several)
        case Layout.RAW_SLICES:
            from timeline.sources.cann_raw.source import RawSlicesSource

            return RawSlicesSource(identity, clock, capture.content)
        case Layout.PARSED:
            from timeline.sources.msprof_sqlite.source import ParsedSource

            return ParsedSource(identity, clock, capture.content)
        case Layout.KERNEL_TABLE:
            from timeline.sources.tables.source import KernelTableSource

            return KernelTableSource(identity, clock, capture.content, several)
        case Layout.KINETO:
            from timeline.sources.kineto.source import KinetoSource

            host = clock.host or host_of(identity.worker)
            return KinetoSource(identity, replace(clock, host=host), capture.content)
        case Layout.TEXT | Layout.STEP_TICKS:
            from timeline.sources.mindspore.text_source import STEP_TRACE, TEXT, MindSporeTextSource

            assert capture.device is not None
            name = TEXT if capture.layout is Layout.TEXT else STEP_TRACE
            return MindSporeTextSource(identity, clock, capture.content, capture.device, name)
        case Layout.HARDWARE_LOG:
            from timeline.sources.mindspore.raw_source import MindSporeRawSource

            assert capture.device is not None
            return MindSporeRawSource(identity, clock, capture.content, capture.device)
        case Layout.EMPTY:
            raise nothing_in(capture)


def _exported(capture: Capture, identity: Identity, clock: Clock, several: bool) -> Source:
    from timeline.sources.trace_json.source import (
        GraphTimelineSource,
        MindStudioSource,
        RawSource,
        TraceViewSource,
    )

    if capture.layout is Layout.TRACE_VIEW:
        return TraceViewSource(identity, clock, capture.content)
    if capture.layout is Layout.MINDSTUDIO:
        return MindStudioSource(identity, clock, capture.content, several)
    if capture.layout is Layout.GRAPH_TIMELINE:
        return GraphTimelineSource(identity, clock, capture.content)
    return RawSource(identity, clock)


def nothing_in(capture: Capture) -> NoProfileError:
    """The error of a capture whose output holds nothing that is read."""
    return NoProfileError(
        capture.directory,
        f"holds nothing that can be read in {capture.content.name}.",
        do="Parse the profile again, or copy all of it.",
    )
