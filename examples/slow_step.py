"""Finds the step that took longest, what determined that, and exports every task of it."""

import timeline

with timeline.open_profile("profile") as profile:
    slowest = max(profile.steps().to_dicts(), key=lambda row: row["span_ns"] or 0)
    chosen = timeline.Selection(steps=slowest["step"])
    for row in profile.waiting(chosen).to_dicts():
        print(f"rank {row['rank']} waited for rank {row['waited_for_rank']}: {row['waited_ns']} ns")
    path = profile.critical_path(chosen).to_dicts()
    for row in sorted(path, key=lambda row: -row["duration_ns"])[:5]:
        print(f"rank {row['rank']} {row['kind']}, {row['name']}: {row['duration_ns']} ns")
    report = timeline.export(profile, "slow.pftrace", selection=chosen, kind="detail", force=True)
print(report)
