"""SQLite profile databases that msprof, torch_npu and MindSpore export."""
