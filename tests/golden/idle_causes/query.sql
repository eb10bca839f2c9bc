SELECT trim(rank.name) AS rank, slice.name AS cause, count(*) AS slices, sum(slice.dur) AS idle_ns,
       max(extract_arg(slice.arg_set_id, 'overlap.call')) AS call
FROM slice JOIN track ON track.id = track_id JOIN track layer ON layer.id = track.parent_id
     JOIN track rank ON rank.id = layer.parent_id
WHERE track.name = 'Idle' AND rank.name GLOB '*Rank 1*' GROUP BY 1, 2 ORDER BY idle_ns DESC, 2
