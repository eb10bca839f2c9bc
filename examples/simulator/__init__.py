"""A simulated training run, and writers that render it as profilers do.

`simulation.make_run` makes a `model.Run`, each writer of `layouts.LAYOUTS` renders that same run in
one layout, and `overlap` says by other means than tlexport what a correct summary of it shows.
"""
