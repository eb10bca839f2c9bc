"""Writers: the only part that knows a trace format; they turn a timeline into bytes."""
