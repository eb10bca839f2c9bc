"""What the step trace of MindSpore tells beside the steps themselves."""

from __future__ import annotations

import numpy as np

from timeline.columns.columns import Bool, Codes, ColumnTable, Int64, column
from timeline.columns.strings import NO_NAME
from timeline.records.not_given import NO_GRAPH, NO_ID, NO_TIME

__all__ = ["StepPoints", "StepTraceMeans"]


class StepTraceMeans(ColumnTable):
    """The mean row of a step trace, which MindSpore makes of all steps but the first.

    total_ns = interval_ns + fp_bp_ns + tail_ns. All of it is 0 where there was one step only.
    """

    step: Int64 = column(np.int64, NO_ID)
    mean: Bool = column(np.bool_, 1)
    total_ns: Int64 = column(np.int64, NO_TIME)
    interval_ns: Int64 = column(np.int64, NO_TIME)
    fp_bp_ns: Int64 = column(np.int64, NO_TIME)
    tail_ns: Int64 = column(np.int64, NO_TIME)


class StepPoints(ColumnTable):
    """A row per graph: the operators at which forward begins and backward ends.

    graph: NO_GRAPH where the file tells it of all graphs together.
    """

    graph: Int64 = column(np.int64, NO_GRAPH)
    fp_start: Codes = column(np.int32, NO_NAME)
    bp_end: Codes = column(np.int32, NO_NAME)
