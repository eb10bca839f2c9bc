SELECT count(*) AS launches, min(task.ts - call.ts) AS shortest_ns,
       max(task.ts - call.ts) AS longest_ns
FROM flow JOIN slice call ON call.id = slice_out JOIN slice task ON task.id = slice_in
     JOIN track ON track.id = task.track_id JOIN track caller ON caller.id = call.track_id
WHERE track.name = 'Stream 2' AND caller.name GLOB 'Thread *'
