SELECT domain.name AS communicator, slice.name AS op, slice.dur AS lasted_ns,
       extract_arg(arg_set_id, 'communication.waited_ns') AS waited_ns,
       extract_arg(arg_set_id, 'communication.last_rank') AS last_rank,
       extract_arg(arg_set_id, 'communication.ranks') AS ranks
FROM slice JOIN track domain ON domain.id = track_id JOIN track top ON top.id = domain.parent_id
WHERE trim(top.name) = 'Collectives' ORDER BY waited_ns DESC, communicator, op LIMIT 5
