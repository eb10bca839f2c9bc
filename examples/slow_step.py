"""Finds the step that took longest, what it spent its time on, and exports every task of it."""

import timeline

with timeline.open_profile("profile") as profile:
    slowest = max(profile.steps().to_dicts(), key=lambda row: row["span_ns"] or 0)
    chosen = timeline.Selection(ranks=slowest["rank"], steps=slowest["step"])
    for row in profile.operators(chosen).to_dicts():
        print(row["type"], row["count"], row["total_ns"])
    report = timeline.export(profile, "slow.pftrace", selection=chosen, kind="detail", force=True)
print(report)
