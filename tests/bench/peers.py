"""Other tools that read the same profiles, each in an environment of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

_LOAD_WITH_HTA = """
import sys
from hta.trace_analysis import TraceAnalysis
assert TraceAnalysis(trace_dir=sys.argv[1]).t.traces
"""
_MERGE_WITH_MINDINSIGHT = """
import importlib.machinery, importlib.util, json, logging, sys, types
# Of the package only what merges timelines: the rest wants a web server.
(place,) = importlib.util.find_spec("mindinsight").submodule_search_locations
for name in ("", ".profiler", ".profiler.analyser", ".profiler.common"):
    module = sys.modules["mindinsight" + name] = types.ModuleType("mindinsight" + name)
    module.__path__ = [place + name.replace(".", "/")]
log = sys.modules["mindinsight.profiler.common.log"] = types.ModuleType("log")
log.logger = logging.getLogger("mindinsight")
base = sys.modules["mindinsight.profiler.analyser.base_analyser"] = types.ModuleType("base")
class BaseAnalyser:
    def __init__(self, profiling_dir, device_id=None):
        self._profiling_dir, self._device_id = profiling_dir, device_id
base.BaseAnalyser = BaseAnalyser
from mindinsight.profiler.analyser.msprof_timeline_analyser import MsprofTimelineAnalyser
events = MsprofTimelineAnalyser(sys.argv[1]).get_merged_timeline([], [], "detail")
assert len(events) > 1000
with open(sys.argv[2], "w") as file:
    json.dump(events, file)
"""
_MERGE_AS_ATT_DOES = """
import json, sys
*traces, merged = sys.argv[1:]
events = []
for rank, trace in enumerate(traces):
    with open(trace) as file:
        own = json.load(file)
    processes = {}
    for event in own:
        if event.get("name") == "process_name" and event.get("ph") == "M" and event.get("args"):
            processes[event["args"].get("name")] = event.get("pid")
    kept = set(processes.values())
    for event in own:
        if kept and event.get("pid") not in kept:
            continue
        if event.get("name") == "process_name" and event.get("ph") == "M":
            if event.get("args") is not None and event["args"].get("name") is not None:
                event["args"]["name"] += f"_{rank}"
        if event.get("id") and event.get("ph") in ("s", "f"):
            event["id"] = float(event["id"]) * 1000 + rank
        events.append(event)
with open(merged, "w") as file:
    json.dump(events, file)
"""


@dataclass(frozen=True)
class Peer:
    """A tool that the package index may hold, and the program that has it do our work.

    One without packages is no tool that can be installed; its program does the same.
    """

    name: str
    packages: tuple[str, ...]
    program: str


HTA = Peer("HTA", ("HolisticTraceAnalysis",), _LOAD_WITH_HTA)
MINDINSIGHT = Peer(
    "MindInsight", ("--no-deps", "mindinsight", "marshmallow", "packaging"), _MERGE_WITH_MINDINSIGHT
)
MERGE = Peer("att merge", (), _MERGE_AS_ATT_DOES)
"""As merge_profiling_timeline/main.py of Ascend/mstt merges a directory, which no package holds."""


@dataclass(frozen=True)
class Peers:
    """Environments of peers, below a directory."""

    directory: Path

    def command(self, peer: Peer, *arguments: str) -> list[str] | None:
        """What runs a peer, which is installed before; None where it cannot be had."""
        own = self.directory / peer.name / "bin/python"
        python = own if peer.packages else Path(sys.executable)
        if not python.exists() and not self._install(peer, python):
            return None
        return [str(python), "-c", peer.program, *arguments]

    def _install(self, peer: Peer, python: Path) -> bool:
        if os.name == "nt":
            return False
        directory = self.directory / peer.name
        subprocess.run([sys.executable, "-m", "venv", str(directory)], check=True)
        installs = [str(python), "-m", "pip", "install", "--quiet", *peer.packages]
        done = subprocess.run(installs, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        if done.returncode:
            print(done.stderr.decode(errors="replace"), file=sys.stderr)
        return not done.returncode
