"""What tests share: profiles on a shelf, expected pictures, the trace processor and the UI."""
