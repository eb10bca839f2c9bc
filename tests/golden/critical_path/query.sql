SELECT extract_arg(arg_set_id, 'path.iteration') AS step,
       extract_arg(arg_set_id, 'path.rank') AS rank,
       extract_arg(arg_set_id, 'path.kind') AS kind, count(*) AS segments, sum(dur) AS total_ns
FROM slice JOIN track ON track.id = track_id
WHERE trim(track.name) = 'Critical path' AND step = 2 GROUP BY 1, 2, 3 ORDER BY total_ns DESC, 2, 3
