"""An example of a table's declaration: the number of tasks of each rank.

In the package it would be in a module of `timeline/tables/`, and in TABLES of
`timeline/verdict/figures.py`.
"""

from __future__ import annotations

from timeline.tables.table import Json, Method, Spec, View

TOY: Spec = Spec(
    "toys",
    "rank with tasks",
    """
    rank
    tasks: of its device
    toy_ns: a time that is never measured
    """,
    lambda run: TOY.of_rows((rank.rank, rank.tasks, None) for rank in run.facts if rank.tasks),
    Json("toys"),
    Method("toys"),
    (View("toys", "Toys of each rank", ("rank", "tasks", "toy_ns"), order="tasks"),),
)
