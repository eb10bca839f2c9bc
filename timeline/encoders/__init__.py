"""Writing of traces: nothing else knows a trace format, or writes a file."""
