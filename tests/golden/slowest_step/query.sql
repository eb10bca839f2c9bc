SELECT name AS step, extract_arg(arg_set_id, 'step.slowest_rank') AS slowest_rank,
       extract_arg(arg_set_id, 'step.slowest_ns') AS slowest_ns,
       extract_arg(arg_set_id, 'step.fastest_ns') AS fastest_ns
FROM slice WHERE extract_arg(arg_set_id, 'step.slowest_ns') IS NOT NULL
ORDER BY slowest_ns DESC LIMIT 1
