"""Profiles of any size, made of the real ones."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.support.places import ROOT


@dataclass(frozen=True)
class Inputs:
    """Makes profiles of any size from the real ones."""

    shared: Path
    directory: Path

    def trace(self, ranks: int, megabytes: int) -> Path:
        """torch_npu text captures with a trace of some size each."""
        made = self.directory / f"trace-{ranks}-{megabytes}"
        for rank in range(ranks):
            source = self.shared / f"data/torch-npu-text/rank{rank}_ascend_pt"
            capture = made / source.name
            output = capture / "ASCEND_PROFILER_OUTPUT"
            output.mkdir(parents=True)
            for name in (f"profiler_info_{rank}.json", "profiler_metadata.json"):
                shutil.copyfile(source / name, capture / name)
            self._scale(
                "json",
                source / "ASCEND_PROFILER_OUTPUT/trace_view.json",
                output / "trace_view.json",
                "--mb",
                str(megabytes),
            )
        return made

    def database(self, tasks: int) -> Path:
        """A torch_npu capture with a database of some tasks, and the CANN calls beside them."""
        made = self.directory / f"database-{tasks}"
        self._capture(made, 0, tasks)
        return made

    def _capture(self, made: Path, rank: int, tasks: int, *options: str) -> Path:
        """The database of a capture, made of that of one of the two real ranks."""
        real = rank % 2
        source = self.shared / f"data/torch-npu-db/rank{real}_ascend_pt"
        output = made / f"rank{rank}_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
        output.mkdir(parents=True)
        said = json.loads((source / f"profiler_info_{real}.json").read_text(encoding="utf-8"))
        told = json.dumps(said | {"rank_id": rank})
        (output.parent / f"profiler_info_{rank}.json").write_text(told, encoding="utf-8")
        read = source / "ASCEND_PROFILER_OUTPUT" / f"ascend_pytorch_profiler_{real}.db"
        target = output / f"ascend_pytorch_profiler_{rank}.db"
        self._scale("db", read, target, "--tasks", str(tasks), *options)
        return target

    def _scale(self, kind: str, source: Path, target: Path, *size: str) -> None:
        tool = self.shared / "tools/scaleup.py"
        command = [sys.executable, str(tool), kind, "--src", str(source), "--out", str(target)]
        subprocess.run([*command, *size], check=True, stdout=subprocess.DEVNULL)

    def ranks(self, count: int) -> Path:
        """Many small ranks."""
        made = self.directory / f"ranks-{count}"
        maker = ROOT / "examples/make_profile.py"
        command = [sys.executable, str(maker), str(made), "--layout", "torch-db"]
        subprocess.run([*command, "--ranks", str(count)], check=True, stdout=subprocess.DEVNULL)
        return made
