"""CSV tables that are exported: kernel_details, op_summary, task_time, step_trace."""
