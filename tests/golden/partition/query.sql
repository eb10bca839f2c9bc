SELECT trim(track.name) AS rank, slice.name AS part, count(*) AS pieces, sum(slice.dur) AS total_ns
FROM slice JOIN track ON track.id = track_id
WHERE track.parent_id IS NULL AND track.name GLOB '*Rank *' GROUP BY 1, 2 ORDER BY 1, 2
