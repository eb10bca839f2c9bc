SELECT trim(top.name) AS row, count(DISTINCT slice.id) > 0 AS has_slices,
       count(DISTINCT child.id) AS rows_below, min(child.name) AS first_below
FROM track top LEFT JOIN slice ON slice.track_id = top.id
     LEFT JOIN track child ON child.parent_id = top.id
WHERE top.parent_id IS NULL AND top.name GLOB '*Rank*' GROUP BY top.name ORDER BY top.name
