SELECT trim(rank.name) AS rank, slice.name AS waited_for, count(*) AS times, sum(slice.dur) AS waited_ns,
       max(extract_arg(slice.arg_set_id, 'overlap.last_rank')) AS last_rank
FROM slice JOIN track ON track.id = track_id JOIN track layer ON layer.id = track.parent_id
     JOIN track rank ON rank.id = layer.parent_id
WHERE track.name = 'Waiting' GROUP BY 1, 2 ORDER BY 1, 2
