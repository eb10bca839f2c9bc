"""Trace JSON of msprof, torch_npu and MindSpore: its lanes, and records of its events."""
