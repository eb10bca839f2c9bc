SELECT track.name AS row, count(DISTINCT child.id) > 0 AS has_rows_below,
       count(DISTINCT slice.id) > 0 AS has_slices
FROM track LEFT JOIN track child ON child.parent_id = track.id
     LEFT JOIN slice ON slice.track_id = track.id
WHERE track.parent_id IS NULL GROUP BY track.name ORDER BY track.name
