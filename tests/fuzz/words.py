"""Words to put into inputs: what readers look for, and what they should stumble over."""

from __future__ import annotations

NUMBERS = (
    *(
        b"0 -0 -1 1 5 31 32 1.5 0.0005 1e-05 1e5 1E400 1e-400 -1e308 1e18 4294967295 4294967296 "
        b"2147483648 9223372036854775807 9223372036854775808 -9223372036854775808 "
        b"-9223372036854775809 18446744073709551615 18446744073709551616 9007199254740993 "
        b"9223372036854775.807 9223372036854775.808 -9223372036854775.808 8999999999999999.999 "
        b"9000000000000000 1736424000129323.387 1736424000129323.3875 99999999999999999999999 "
        b"NaN Infinity -Infinity 0x10 1_000 .5 5. +5 007"
    ).split(),
    b"0." + b"1" * 40,
)
LONG = (b"9" * 400, b"1" * 4400, b"[" * 1200, b'{"a":' * 1200)
"""What no field is long enough for; rarely put in, because reading it takes long."""
STRINGS = tuple(
    text.encode()
    for text in (
        "",
        " ",
        "N/A",
        "NA",
        "nan",
        "inf",
        "²",
        "٣",
        "-1",
        "--5",
        "0",
        "1736424000129323.387\t",
        "-1736424000129323.387",
        "9223372036854775808",
        "18446744073709551616",
        "\\u0000",
        "\\ud800",
        "\\n",
        "é漢🎉",
        "Ascend Hardware",
        "HCCL",
        "Communication",
        "Overlap Analysis",
        "Step Trace",
        "CANN",
        "Python",
        "Plane 0",
        "Plane 99999999999999999999",
        "Stream 2",
        "Stream 99999999999999999999",
        "Stream ٣",
        "Step Trace(Model ID:1)",
        "Model ID: 99999999999999999999",
        "Group 0 Communication",
        "Communication Kernel",
        "Iteration 1",
        "Iteration 99999999999999999999",
        "ProfilerStep#2",
        "ProfilerStep#99999999999999999999",
        "Reduce_1_0",
        "Reduce_99999999999999999999_0",
        "GetNext Time",
        "GetNext_1_1",
        "HostToDevice",
        "async_npu",
        "Data_aug Bound",
        "AI_CORE",
        "EVENT_RECORD",
        "process_name",
        "thread_name",
        "X",
        "C",
        "M",
        "s",
        "f",
        "t",
        "i",
        "B",
        "b",
    )
)
KEYS = (
    *(
        b"name ph pid tid ts dur cat id args bp traceEvents connection_id level rank_id hostname "
        b"mac collectionTimeBegin clockMonotonicRaw schemaVersion"
    ).split(),
    b"Model Id",
    b"Task Type",
    b"Physic Stream Id",
    b"Stream Id",
    b"Task Id",
    b"Batch Id",
    b"Subtask Id",
    b"notify_id",
    b"stream id",
    b"src rank",
    b"dst rank",
    b"size(Byte)",
    b"bandwidth(GB/s)",
    b"model id",
    b"Iteration ID",
    b"FP Start",
    b"BP End",
    b"count",
    b"hbm_id",
)
OTHERS = (b"null", b"true", b"false", b"[]", b"{}", b"[{}]", b'{"name":1}')
