SELECT trim(row.name) AS waits_on, wait.name AS wait, wait.dur AS waited_ns,
       trim(late.name) AS late_on, work.name AS did
FROM flow
JOIN slice wait ON wait.id IN (slice_out, slice_in)
JOIN slice work ON work.id IN (slice_out, slice_in) AND work.id != wait.id
JOIN track row ON row.id = wait.track_id
JOIN track late ON late.id = work.track_id
WHERE wait.name GLOB 'Waiting for*'
ORDER BY waited_ns DESC, waits_on, did LIMIT 8
