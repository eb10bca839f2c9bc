SELECT extract_arg(arg_set_id, 'task.op_type') AS op_type, count(*) AS tasks,
       sum(dur) AS total_ns
FROM slice WHERE op_type IS NOT NULL GROUP BY 1 ORDER BY total_ns DESC, 1 LIMIT 3
