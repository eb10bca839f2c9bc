"""Profile databases of msprof, torch_npu and MindSpore."""
