SELECT trim(rank.name) AS rank, count(*) AS pieces, sum(slice.dur) AS exposed_ns
FROM slice JOIN track ON track.id = track_id JOIN track layer ON layer.id = track.parent_id
     JOIN track rank ON rank.id = layer.parent_id
WHERE track.name = 'Exposed communication' GROUP BY 1 ORDER BY 1
