"""Captures that torch_npu, MindSpore or msprof exported as Chrome-trace JSON."""
