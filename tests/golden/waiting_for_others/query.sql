SELECT plane.name AS plane, count(*) AS waits, max(dur) AS longest_ns
FROM slice JOIN track plane ON plane.id = track_id
WHERE slice.name = 'Notify_Wait' GROUP BY 1 ORDER BY longest_ns DESC, 1 LIMIT 2
