"""A table of a dozen lines, as a newcomer would add one: the number of tasks of each rank.

A module in `timeline/tables/` would hold it, and TABLES in `timeline/verdict/figures.py` name it.
"""

from __future__ import annotations

from timeline.tables.table import Json, Method, Spec, View

TOY: Spec = Spec(
    "toys",
    "rank with tasks",
    """
    rank
    tasks: of its device
    toy_ns: a time that nobody measured
    """,
    lambda run: TOY.of_rows((rank.rank, rank.tasks, None) for rank in run.facts if rank.tasks),
    Json("toys"),
    Method("toys"),
    (View("toys", "Toys of each rank", ("rank", "tasks", "toy_ns"), order="tasks"),),
)
