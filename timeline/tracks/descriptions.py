"""Descriptions of rows, which the viewer shows on request."""

from __future__ import annotations

from timeline.analysis.memory import MEMORY_OF_GRAPHS

VERDICT = (
    "What takes the time: the sentences that the command printed when it wrote this file, in lines "
    "as long as the timeline. Their arg see_why is the command to run next."
)
SEE_WHY = "The command that shows why, and how the sentences are printed again."
NOTES = "What to know before reading the rest: problems of the profile, and what is not shown."
TOPICS = {
    "Warnings": "What is wrong with the profile or missing from it.",
    "Left out": "Records that are not in this file, with the reason.",
    "Merged": "Layers that are not exact to keep a limit of the file, and their resolution.",
}

STEPS_OF_ALL_RANKS = (
    "Each step from the end of the step before to its own end on the last rank; args name the "
    "slowest and the fastest rank and how far they are apart."
)
STEPS_OF_ONE_RANK = "The steps of the rank; args show how each was spent."
PARTITION = (
    "Where the time of the rank goes; nothing is counted twice. Waiting is for the last rank of a "
    "collective while nothing computes. Unfold it to see all rows of the rank."
)
MANY_RANKS = "Ranks without findings, folded so that the others are easy to find."
PART_OF_RUN = (
    "Ranks that have the same part of the run, folded. The row is that of the rank in brackets, "
    "which took longest for itself: it waited for others and exchanged data least."
)
ALL_OF_RANK = "All rows of one rank, which ran nothing on the device."
SUMS_OF_RANK = "The total time of each part of the rank's time."
LENGTHS_OF_STEPS = (
    "How much longer each step took than the median of all steps, each on the rank where it took "
    "longest."
)
AI_CPU = (
    "Operators that the AI CPUs of the device ran, by thread, according to their own log. Those "
    "without a task recorded on the device do not count as computing."
)

ITERATIONS = (
    "Iterations as the device marks them. Inside: FP/BP from FP start to BP end, and Iteration "
    "Refresh from BP end to the end of the iteration."
)
PROFILER_STEPS = (
    "ProfilerStep#N of the framework: its window on the host. Its args are those of the device "
    "work that it launched."
)
STEPS_ON_DEVICE = "First start to last end of the device work that a step launched."
DATA_AUG_BOUND = "Wait for data: from the latest end of any iteration to the FP start of the next."
REDUCE = "Reduce operators of an iteration, as the device marks their start and end."
GET_NEXT = "Fetches of the next data, as the device marks their start and end."

OVERLAP = {
    "Computing": "Union of the compute tasks of all streams.",
    "Communication": "Union of the communication ops of all groups.",
    "Exposed communication": ("Communication while nothing computes: what a step loses to it."),
    "Free": "Neither computes nor communicates, between the first and the last of both.",
}
FREE_OUTSIDE = (
    "Neither computes nor communicates, as newer versions of msprof count it: also before the "
    "first and after the last of both, while the device has other tasks."
)
COMMUNICATION_BY_TASKS = (
    "Union of the HCCL tasks of all groups, as torch_npu counted it before October 2024."
)
COPIES = "Memory is copied or filled while the device neither computes nor communicates."
IDLE = (
    "The device neither computes, communicates nor copies, between the first and the last of "
    "computing and communication."
)
IDLE_BY_CAUSE = (
    "The device neither computes, communicates nor copies. Slices show what the host did until it "
    "launched the next task, and the call that took most of that time."
)

CRITICAL_PATH = (
    "What determined how long each step took: from its last device end back through what each task "
    "waited for, on any rank, to the last device end of the step before. Unfold it for each rank."
)
COLLECTIVES = (
    "Collectives over all ranks of a communicator, each from its first arrival to its last end. "
    "Args tell the longest wait in it and the rank that came last."
)
PATH_OF_RANK = "Stays of the critical path on the rank, named after what took most of each."
WAITING = (
    "Time in a collective before its last rank came. Starts of ranks are compared on one clock; "
    "the report says how well the clocks agree."
)
LATE = (
    "How much later than its peers the rank came to the collectives of each step: the median of "
    "how long ranks waited there while nothing computed, less how long it waited itself."
)
BASE_AND_NEW = (
    "Differences of steps between two runs; the new run is moved in time so that its first step "
    "begins with that of the base. Slices show how much longer each step took in the new run, on "
    "the rank where it took longest, at the time of the step in the base."
)

HARDWARE = (
    "Device tasks of one hardware stream; tasks that run at once get lanes. Kernels are called by "
    "the type of their operator; the arg name is the whole name."
)
OPS = "Communication ops of the group, whose tasks on planes are not in the profile."
OPS_ABOVE_PLANES = "Communication ops of the group: each spans all its tasks on the planes below."
PLANE = "HCCL tasks of one plane; each is drawn on its hardware stream too."
THREAD = "Calls of one host thread, inner ones below those that made them."
SCOPES = (
    "Scopes of the operators of one stream, outermost on top: each from the first start to the "
    "last end of operators that follow each other in it."
)
NOT_IN_THIS_FILE = (
    "One slice where tasks, HCCL tasks and host calls are left out to keep the size limit; "
    "its args count them."
)

PLANNED = (
    "What each graph holds at its operators, in bytes, as planned before it ran: each value holds "
    "from the start of one operator to that of the next."
)


def communication_group(called: str) -> str:
    """Describe a group of ops and planes; called: names of the communicator, "" for none."""
    also = f" All of them call it {called}." if called else ""
    return f"Ranks that communicate with each other.{also}"


def counter_group(name: str) -> str:
    """Describe the group of the counters of one source."""
    if name == MEMORY_OF_GRAPHS:
        return PLANNED
    return f"Counters of {name}."


def counter_family(name: str, group: str) -> str:
    """Describe a family of counters of one source, which differ only in a unit of the device."""
    return f"{name} of each unit, from {group}."


def counter(group: str, unit: str) -> str:
    """Describe one counter."""
    if group == MEMORY_OF_GRAPHS:
        return PLANNED
    samples = f"Samples of {group}{f' in {unit}' if unit else ''}"
    return f"{samples}, as the profile holds them; each value holds until the next one."
