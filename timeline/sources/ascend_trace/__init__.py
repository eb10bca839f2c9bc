"""Readers of the trace JSON that msprof, torch_npu and MindSpore write."""
