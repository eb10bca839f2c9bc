SELECT slice.name AS label, min(extract_arg(arg_set_id, 'task.name')) AS whole_name, count(*) AS tasks
FROM slice WHERE category = 'task' AND extract_arg(arg_set_id, 'task.name') IS NOT NULL
GROUP BY 1 ORDER BY tasks DESC, label LIMIT 4
