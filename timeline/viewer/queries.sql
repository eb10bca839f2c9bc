-- Questions to a timeline of tlexport, for the Query page of https://ui.perfetto.dev or for
-- trace_processor. Run the whole file once on a .pftrace or .json; then each question is a view:
--
--   SELECT * FROM slowest_steps;
--
-- At a terminal, `tlexport query FILE slowest_steps` asks the same.
--
-- Times are nanoseconds. Slices that were merged to keep a size limit stand for many records:
-- questions about single tasks, ops and calls leave them out, so ask those of an exact file.

-- What everything below is built on: the rank, run, layer and row of each track, whose number `row`
-- is that of its first lane. Names come without the spaces and numbers that put rows in order; a
-- rank is a number; the run is empty unless two are compared.
CREATE OR REPLACE PERFETTO TABLE drawn_rows AS
WITH RECURSIVE
  ways(track_id, above, name, at) AS (
    SELECT id, parent_id, trim(name), 0 FROM track
    UNION ALL
    SELECT track_id, parent_id, trim(track.name), at + 1
    FROM ways JOIN track ON track.id = ways.above
  ),
  labels AS (
    SELECT
      track_id,
      CASE WHEN at = 0 THEN name END AS label,
      CASE WHEN name GLOB 'Rank [0-9]*' THEN name END AS rank_name,
      -- The outermost name that is neither a rank's nor that of many ranks.
      CASE WHEN name NOT GLOB 'Rank [0-9]*' AND name NOT GLOB 'Ranks [0-9]*-*' THEN at END AS layer_at
    FROM ways
    WHERE name IS NOT NULL
  ),
  protobuf AS (
    SELECT
      track_id, max(label) AS label, max(rank_name) AS rank_name, max(layer_at) AS layer_at
    FROM labels
    GROUP BY track_id
  ),
  -- In .json, Overlap Analysis: Computing is a thread of the process Rank 5; where layers come
  -- first, Computing is one of 2 Overlap Analysis: Rank 5. Overview has rows of all ranks.
  threads AS (
    SELECT
      thread_track.id AS track_id,
      upid AS folder,
      process.name GLOB '*: Rank [0-9]*' AS of_layer,
      process.name AS process,
      iif(process.name GLOB '*Rank [0-9]*', process.name, thread.name) AS ranked,
      thread.name AS thread,
      substr(thread.name, 1, instr(thread.name || ': ', ': ') - 1) AS outer,
      substr(thread.name, instr(thread.name, ': ') + iif(thread.name GLOB '*: *', 2, 0)) AS inner
    FROM thread_track JOIN thread USING (utid) JOIN process USING (upid)
    WHERE thread_track.name IS NULL
  ),
  named AS (
    SELECT
      protobuf.track_id,
      protobuf.rank_name,
      -- Layers that are roots are numbered.
      iif(
        outermost.above IS NULL, ltrim(outermost.name, '0123456789 '), outermost.name
      ) AS layer,
      iif(protobuf.label GLOB 'Plane *', trim(folder.name) || ' ', '') || protobuf.label AS label,
      folder.id AS folder,
      extract_arg(folder.source_arg_set_id, 'description') AS folder_meaning
    FROM protobuf
    JOIN track ON track.id = protobuf.track_id
    LEFT JOIN track AS folder ON folder.id = track.parent_id
    LEFT JOIN ways AS outermost
      ON outermost.track_id = protobuf.track_id AND outermost.at = protobuf.layer_at
    UNION ALL
    SELECT
      track_id,
      iif(ranked GLOB '*Rank [0-9]*', substr(ranked, instr(ranked, 'Rank ')), NULL),
      iif(
        of_layer,
        ltrim(substr(process, 1, instr(process, ': Rank ') - 1), '0123456789 '),
        iif(thread GLOB 'Rank [0-9]*', NULL, outer)
      ),
      iif(
        thread GLOB 'Rank [0-9]*',
        thread,
        iif(of_layer AND inner NOT GLOB outer || '*', outer || ' ' || inner, inner)
      ),
      folder,
      NULL
    FROM threads
  ),
  -- Rank 05 new: slows the others.
  ranked AS (
    SELECT
      *,
      cast_int!(substr(rank_name, 6)) AS rank,
      ltrim(substr(rank_name, 6, instr(rank_name || ':', ':') - 6), '0123456789 ') AS run
    FROM named
  )
SELECT
  track_id,
  iif(rank_name IS NULL, NULL, rank) AS rank,
  coalesce(run, '') AS run,
  -- The row of a rank itself parts its time.
  coalesce(layer, iif(rank_name IS NULL, '', 'Where time goes')) AS layer,
  label,
  min(track_id) OVER (PARTITION BY folder, rank_name, layer, label) AS row,
  folder_meaning
FROM ranked;

-- A number or a name among the args of a slice, by the kind of slice, or of a .json.
CREATE OR REPLACE PERFETTO FUNCTION arg_number(args LONG, kind STRING, name STRING)
RETURNS LONG AS
SELECT coalesce(extract_arg($args, $kind || '.' || $name), extract_arg($args, 'args.' || $name));

CREATE OR REPLACE PERFETTO FUNCTION arg_name(args LONG, kind STRING, name STRING)
RETURNS STRING AS
SELECT coalesce(extract_arg($args, $kind || '.' || $name), extract_arg($args, 'args.' || $name));

-- All slices that are records, with the rank, layer and row that they are drawn on.
CREATE OR REPLACE PERFETTO TABLE drawn AS
SELECT
  slice.id, slice.ts, slice.dur, slice.depth, slice.name, slice.arg_set_id AS args,
  drawn_rows.track_id, drawn_rows.rank, drawn_rows.run, drawn_rows.layer, drawn_rows.label,
  drawn_rows.row,
  drawn_rows.folder_meaning
FROM slice
JOIN drawn_rows USING (track_id)
WHERE slice.arg_set_id IS NULL OR arg_number(slice.arg_set_id, 'merged', 'busy_ns') IS NULL;

-- The tasks of the device. Those that compute are called by the type of their operator; `task` is
-- the whole name. `computes` leaves out copies and events.
CREATE OR REPLACE PERFETTO TABLE device_tasks AS
SELECT
  *,
  coalesce(whole_name, name) AS task,
  name NOT GLOB 'nccl*' AND name != task_type AND coalesce(task_type, '') NOT GLOB 'gpu_*' AND (
    coalesce(op_type, whole_name) IS NOT NULL OR task_type = 'kernel' OR task_type GLOB 'AI_*'
    OR task_type GLOB 'MIX_*' OR task_type GLOB 'KERNEL_*'
  ) AS computes
FROM (
  SELECT
    *,
    arg_name(args, 'task', 'op_type') AS op_type,
    arg_name(args, 'task', 'task_type') AS task_type,
    arg_name(args, 'task', 'name') AS whole_name
  FROM drawn
  WHERE label GLOB 'Stream *' AND layer != 'Scope Layer'
);

-- Communication ops. The communicator is what HCCL calls it, which is the same on all ranks.
CREATE OR REPLACE PERFETTO TABLE communication_ops AS
SELECT
  *,
  coalesce(iif(folder_meaning GLOB '*HCCL calls it*', folder_meaning, NULL), label) AS communicator
FROM drawn
WHERE layer = 'Communication' AND label GLOB '* Communication';

-- The steps of each rank that did work on the device: iterations, or what ProfilerStep#N launched.
CREATE OR REPLACE PERFETTO TABLE device_steps AS
SELECT
  *,
  arg_number(args, 'step', 'graph') AS graph,
  arg_number(args, 'step', 'iteration') AS step,
  arg_number(args, 'step', 'period_ns') AS period_ns,
  arg_number(args, 'step', 'span_ns') AS span_ns,
  arg_number(args, 'step', 'computing_ns') AS computing_ns,
  arg_number(args, 'step', 'communication_ns') AS communication_ns,
  arg_number(args, 'step', 'not_overlapped_ns') AS not_overlapped_ns,
  arg_number(args, 'step', 'free_ns') AS free_ns,
  arg_number(args, 'step', 'copies_ns') AS copies_ns,
  arg_number(args, 'step', 'idle_ns') AS idle_ns
FROM drawn
WHERE layer = 'Step Trace' AND label != 'ProfilerStep'
  AND arg_number(args, 'step', 'span_ns') IS NOT NULL;

CREATE OR REPLACE PERFETTO VIEW slow_steps AS
WITH
  -- Ranks number their graphs apart, so graphs tell steps apart only where a rank has several.
  graphs AS (SELECT count(DISTINCT graph) AS several FROM device_steps GROUP BY run, rank),
  matched AS (
    SELECT *, iif((SELECT max(several) FROM graphs) > 1, graph, NULL) AS of_graph
    FROM device_steps
  ),
  placed AS (
    SELECT
      *,
      row_number() OVER (PARTITION BY run, of_graph, step ORDER BY period_ns DESC, rank) AS place,
      max(period_ns) OVER (PARTITION BY run, of_graph, step)
        - min(period_ns) OVER (PARTITION BY run, of_graph, step) AS spread_ns
    FROM matched
  )
SELECT *, rank AS slowest_rank FROM placed WHERE place = 1;

-- 1. Which steps are slow? Slowest first, with the rank that it was slowest on and how that rank
-- spent it; spread_ns is how much longer it took there than on the fastest rank. A step that is
-- slow because of not_overlapped_ns waits for communication, one with idle_ns for the host.
CREATE OR REPLACE PERFETTO VIEW slowest_steps AS
SELECT graph, step, slowest_rank, period_ns, computing_ns, not_overlapped_ns, idle_ns, spread_ns
FROM slow_steps
ORDER BY period_ns DESC, step;

-- 2. Which rank holds the others up? Means of a step of each rank, the one that computes longest
-- first. Ranks that wait for each other take equally long: the straggler is the one that computes
-- longest and waits least, so its not_overlapped_ns is the smallest.
CREATE OR REPLACE PERFETTO VIEW rank_times AS
SELECT
  rank,
  count(*) AS steps,
  cast_int!(avg(period_ns)) AS step_ns,
  cast_int!(avg(computing_ns)) AS computing_ns,
  cast_int!(avg(communication_ns)) AS communication_ns,
  cast_int!(avg(not_overlapped_ns)) AS not_overlapped_ns,
  cast_int!(avg(idle_ns)) AS idle_ns
FROM device_steps
GROUP BY rank
ORDER BY computing_ns DESC, rank;

CREATE OR REPLACE PERFETTO VIEW exposed_pieces AS
SELECT piece.ts, piece.dur, op.track_id AS lane
FROM (SELECT DISTINCT rank, track_id FROM communication_ops) AS op
JOIN drawn AS piece ON piece.rank = op.rank
WHERE piece.layer = 'Overlap Analysis' AND piece.label = 'Exposed communication'
  AND piece.dur > 0;

CREATE OR REPLACE PERFETTO VIEW op_spans AS
SELECT ts, dur, track_id AS lane, id AS op_id FROM communication_ops WHERE dur > 0;

DROP TABLE IF EXISTS exposed_spans;
CREATE VIRTUAL TABLE exposed_spans
USING SPAN_JOIN(op_spans PARTITIONED lane, exposed_pieces PARTITIONED lane);

-- 3. Which communication costs time? By kind of op and group, the time in which its rank computed
-- nothing meanwhile (exposed_ns), and the time that computing hid. Ops of two groups that are
-- exposed at the same moment both count it.
CREATE OR REPLACE PERFETTO VIEW exposed_communication AS
WITH exposed AS (SELECT op_id, sum(dur) AS exposed_ns FROM exposed_spans GROUP BY op_id)
SELECT
  rank,
  label AS communication_group,
  name,
  count(*) AS ops,
  sum(dur) AS total_ns,
  sum(coalesce(exposed_ns, 0)) AS exposed_ns,
  sum(dur - coalesce(exposed_ns, 0)) AS hidden_ns
FROM communication_ops
LEFT JOIN exposed ON exposed.op_id = communication_ops.id
GROUP BY rank, communication_group, name
ORDER BY exposed_ns DESC, rank, name;

-- 4. Who is last at each collective? The n-th call of a name by a rank is taken for the n-th of all
-- others. late_ns is from the first rank's start to the last one's; lost_ns is what all ranks
-- together waited for the last. Clocks of several hosts may be off by as much as that.
CREATE OR REPLACE PERFETTO VIEW late_arrivals AS
WITH
  calls AS (
    SELECT
      rank, communicator, label, name, ts,
      row_number() OVER (PARTITION BY rank, communicator, name ORDER BY ts) AS call
    FROM communication_ops
  ),
  placed AS (
    SELECT
      *,
      row_number() OVER (PARTITION BY communicator, name, call ORDER BY ts DESC, rank) AS place,
      max(ts) OVER (PARTITION BY communicator, name, call) AS last_ts
    FROM calls
  )
SELECT
  label AS communication_group,
  name,
  call,
  count(*) AS ranks,
  max(iif(place = 1, rank, NULL)) AS last_rank,
  max(ts) - min(ts) AS late_ns,
  sum(last_ts - ts) AS lost_ns
FROM placed
GROUP BY communicator, name, call
HAVING ranks > 1
ORDER BY late_ns DESC, name, call;

-- Which rank is often last? How often it was, and what the others lost by that. A rank that is nearly
-- always last is slower than the others; where all take turns, work is spread unevenly.
CREATE OR REPLACE PERFETTO VIEW late_ranks AS
SELECT
  last_rank AS rank,
  count(*) AS times_last,
  sum(lost_ns) AS lost_ns,
  max(late_ns) AS longest_late_ns
FROM late_arrivals
GROUP BY last_rank
ORDER BY lost_ns DESC;

-- 5. Where does a stream do nothing? Every gap between tasks, the longest first. The task behind a
-- long gap is what the stream waited for: its launch, an event, or data.
CREATE OR REPLACE PERFETTO VIEW stream_gaps AS
SELECT rank, label AS stream, row, idle_since AS ts, ts - idle_since AS dur, task AS next_task
FROM (
  SELECT
    *,
    max(ts + dur) OVER (
      PARTITION BY row ORDER BY ts, id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS idle_since
  FROM device_tasks
)
WHERE ts > idle_since
ORDER BY dur DESC, ts, row;

CREATE OR REPLACE PERFETTO VIEW step_lanes AS
SELECT DISTINCT
  device_tasks.rank, device_tasks.row, device_steps.track_id, device_steps.depth,
  (device_tasks.row << 40) + (device_steps.track_id << 8) + device_steps.depth AS lane
FROM (SELECT DISTINCT rank, row FROM device_tasks) AS device_tasks
JOIN (SELECT DISTINCT rank, track_id, depth FROM device_steps) AS device_steps USING (rank);

CREATE OR REPLACE PERFETTO VIEW gap_spans AS
SELECT ts, dur, lane, stream_gaps.rank, stream FROM stream_gaps JOIN step_lanes USING (row);

CREATE OR REPLACE PERFETTO VIEW step_spans AS
SELECT ts, dur, lane, graph, step
FROM device_steps JOIN step_lanes USING (track_id, depth)
WHERE dur > 0;

DROP TABLE IF EXISTS gaps_in_steps;
CREATE VIRTUAL TABLE gaps_in_steps
USING SPAN_JOIN(gap_spans PARTITIONED lane, step_spans PARTITIONED lane);

-- In which steps does a stream do nothing? The gaps, and parts of gaps, that lie within the step.
CREATE OR REPLACE PERFETTO VIEW step_gaps AS
SELECT rank, graph, step, stream, count(*) AS gaps, sum(dur) AS total_ns, max(dur) AS longest_ns
FROM gaps_in_steps
GROUP BY rank, graph, step, stream
ORDER BY total_ns DESC, rank, step, stream;

-- 6. Which operators take the device's time? Of all ranks together, the longest in total first.
-- Operators on several streams run at the same time, so totals may exceed the time of computing.
CREATE OR REPLACE PERFETTO VIEW operator_times AS
SELECT
  name AS operator,
  task_type,
  count(*) AS tasks,
  sum(dur) AS total_ns,
  cast_int!(avg(dur)) AS mean_ns,
  max(dur) AS longest_ns,
  round(100.0 * sum(dur) / sum(sum(dur)) OVER (), 1) AS percent
FROM device_tasks
WHERE computes
GROUP BY name, task_type
ORDER BY total_ns DESC, operator;

CREATE OR REPLACE PERFETTO VIEW launches AS
SELECT
  task.rank, task.label AS stream, call.layer AS host_layer, call.name AS call,
  task.task, task.ts, task.ts - call.ts AS delay_ns
FROM flow
JOIN drawn AS call ON call.id = flow.slice_out
JOIN device_tasks AS task ON task.id = flow.slice_in
WHERE call.label GLOB 'Thread *';

-- 7. Is the host fast enough? From the start of a host call to the start of the task that it
-- launched, by the arrows between them. Short delays mean that the device waits for the host; long
-- ones that the host runs ahead, as it should.
CREATE OR REPLACE PERFETTO VIEW launch_delays AS
SELECT
  rank,
  stream,
  host_layer,
  count(*) AS launches,
  min(delay_ns) AS shortest_ns,
  cast_int!(avg(delay_ns)) AS mean_ns,
  max(delay_ns) AS longest_ns
FROM launches
GROUP BY rank, stream, host_layer
ORDER BY rank, stream, host_layer;

-- 8. Which link is slow? HCCL tasks by plane and kind of link: waits for others apart from moving
-- data. gb_per_s is the bytes that were moved by the time that moving them took.
CREATE OR REPLACE PERFETTO VIEW plane_times AS
SELECT
  rank,
  label AS plane,
  link_type,
  count(*) AS tasks,
  sum(dur) AS total_ns,
  sum(iif(is_wait, dur, 0)) AS waiting_ns,
  sum(size_bytes) AS moved_bytes,
  round(1.0 * sum(size_bytes) / sum(iif(size_bytes > 0, dur, NULL)), 3) AS gb_per_s
FROM (
  SELECT
    *,
    arg_name(args, 'hccl', 'link_type') AS link_type,
    arg_number(args, 'hccl', 'size_bytes') AS size_bytes,
    replace(lower(name), ' ', '_') = 'notify_wait' AS is_wait
  FROM drawn
  WHERE layer = 'Communication' AND label GLOB '* Plane *'
)
GROUP BY rank, label, link_type
ORDER BY rank, total_ns DESC, label, link_type;

-- 9. What is slow, in words? What the command said when it wrote the file; of a comparison, what
-- changed.
CREATE OR REPLACE PERFETTO VIEW verdict AS
SELECT coalesce(arg_name(args, 'note', 'sentence'), name) AS sentence
FROM drawn
WHERE rank IS NULL AND layer IN ('What is slow', 'What changed') AND label != 'See why'
GROUP BY sentence
ORDER BY min(id);

-- 10. Who waits for whom in collectives? By rank, the rank that came last, also where that was not
-- profiled; waited_for_rank is NULL where it is only known that another one was late. Several
-- waits at the same moment count once.
CREATE OR REPLACE PERFETTO VIEW waited_for AS
SELECT
  rank,
  iif(name GLOB 'Waiting for rank *', cast_int!(substr(name, instr(name, 'rank ') + 5)), NULL)
    AS waited_for_rank,
  name GLOB 'Waiting for rank *' AND name NOT GLOB '*(not [ps]*)' AS profiled,
  count(*) AS times,
  sum(dur) AS waited_ns,
  max(dur) AS longest_ns
FROM drawn
WHERE layer = 'Overlap Analysis' AND label = 'Waiting'
GROUP BY rank, name
ORDER BY waited_ns DESC, rank, waited_for_rank;

CREATE OR REPLACE PERFETTO VIEW idle_slices AS
SELECT id, ts, dur, rank, run, name AS cause, arg_name(args, 'overlap', 'call') AS call
FROM drawn
WHERE layer = 'Overlap Analysis' AND label = 'Idle' AND dur > 0;

-- 11. Why does the device idle? Idle time of each rank by cause.
CREATE OR REPLACE PERFETTO VIEW idle_causes AS
SELECT
  rank, cause, count(*) AS slices, sum(dur) AS total_ns, max(dur) AS longest_ns,
  round(100.0 * sum(dur) / sum(sum(dur)) OVER (PARTITION BY rank), 1) AS percent
FROM idle_slices
GROUP BY rank, cause
ORDER BY rank, total_ns DESC, cause;

-- What does the host do meanwhile? The same by the call that it was in.
CREATE OR REPLACE PERFETTO VIEW idle_calls AS
SELECT rank, cause, call, count(*) AS slices, sum(dur) AS total_ns, max(dur) AS longest_ns
FROM idle_slices
WHERE call IS NOT NULL
GROUP BY rank, cause, call
ORDER BY rank, total_ns DESC, cause, call;

CREATE OR REPLACE PERFETTO VIEW path_segments AS
SELECT
  id, ts, dur,
  arg_number(args, 'path', 'iteration') AS step,
  arg_number(args, 'path', 'rank') AS on_rank,
  arg_name(args, 'path', 'kind') AS kind,
  arg_name(args, 'path', 'name') AS task,
  name
FROM drawn
WHERE rank IS NULL AND label = 'Critical path';

-- 12. What determined how long a step took? The critical path by step, rank and kind of segment:
-- the segments of a step last from the device end of the step before to its own. Where rank is NULL,
-- it is not known which one it was. `path_segments` has them one by one.
CREATE OR REPLACE PERFETTO VIEW critical_path AS
SELECT
  step, on_rank AS rank, kind, count(*) AS segments, sum(dur) AS total_ns,
  round(100.0 * sum(dur) / sum(sum(dur)) OVER (PARTITION BY step), 1) AS percent
FROM path_segments
GROUP BY step, on_rank, kind
ORDER BY step, total_ns DESC, rank, kind;

-- 13. In short, what --open shows: a few rows in milliseconds, with the slice that is worst behind
-- them. A click on its id in the Perfetto UI leads there, for which the UI needs the columns after
-- it. run tells base and new of a comparison apart.
--
-- Whom do the others wait for? profiled is 0 where the rank has no rows here; a rank is NULL where
-- it is only known that it is another one.
CREATE OR REPLACE PERFETTO VIEW who_holds_others_up AS
WITH
  waits AS (
    SELECT *, iif(name GLOB 'Waiting for rank *', cast_int!(substr(name, instr(name, 'rank ') + 5)), NULL) AS on_rank
    FROM drawn
    WHERE layer = 'Overlap Analysis' AND label = 'Waiting'
  ),
  placed AS (
    SELECT *, row_number() OVER (PARTITION BY run, on_rank ORDER BY dur DESC, id) AS place
    FROM waits
  ),
  summed AS (
    SELECT
      run,
      on_rank AS rank,
      min(name NOT GLOB '*(not [ps]*)') AS profiled,
      count(DISTINCT rank) AS ranks_waiting,
      sum(dur) AS waited_ns,
      max(iif(place = 1, rank, NULL)) AS longest_on_rank,
      max(iif(place = 1, id, NULL)) AS id
    FROM placed
    GROUP BY run, on_rank
  )
SELECT
  summed.rank,
  ranks_waiting,
  round(waited_ns / 1e6, 3) AS waited_ms,
  round(100.0 * waited_ns / sum(waited_ns) OVER (PARTITION BY run), 1) AS percent,
  round(dur / 1e6, 3) AS longest_ms,
  longest_on_rank,
  profiled,
  run,
  id, ts, dur, track_id, id AS slice_id
FROM summed JOIN slice USING (id)
ORDER BY run, waited_ns DESC, summed.rank;

-- Which steps are slow, and how did the rank that took longest spend them? exposed_ms is
-- exposed communication, before_ms the time outside of its device work, most of it before its first
-- kernel, spread_ms how much longer it took than the fastest rank.
CREATE OR REPLACE PERFETTO VIEW which_steps_are_slow AS
SELECT
  step,
  slowest_rank,
  round(period_ns / 1e6, 3) AS ms,
  round(computing_ns / 1e6, 3) AS computing_ms,
  round(not_overlapped_ns / 1e6, 3) AS exposed_ms,
  round(idle_ns / 1e6, 3) AS idle_ms,
  round((period_ns - span_ns) / 1e6, 3) AS before_ms,
  round(spread_ns / 1e6, 3) AS spread_ms,
  graph,
  run,
  id, ts, dur, track_id, id AS slice_id
FROM slow_steps
ORDER BY run, period_ns DESC, step;

-- Why do devices idle? The causes over all ranks, and the rank that has the longest of each.
CREATE OR REPLACE PERFETTO VIEW why_devices_idle AS
WITH
  placed AS (
    SELECT *, row_number() OVER (PARTITION BY run, cause ORDER BY dur DESC, id) AS place
    FROM idle_slices
  ),
  summed AS (
    SELECT
      run,
      cause,
      count(DISTINCT rank) AS ranks,
      count(*) AS times,
      sum(dur) AS idle_ns,
      max(iif(place = 1, rank, NULL)) AS longest_on_rank,
      max(iif(place = 1, id, NULL)) AS id
    FROM placed
    GROUP BY run, cause
  )
SELECT
  cause,
  round(idle_ns / 1e6, 3) AS idle_ms,
  round(100.0 * idle_ns / sum(idle_ns) OVER (PARTITION BY run), 1) AS percent,
  ranks,
  times,
  round(dur / 1e6, 3) AS longest_ms,
  longest_on_rank,
  run,
  id, ts, dur, track_id, id AS slice_id
FROM summed JOIN slice USING (id)
ORDER BY run, idle_ns DESC, cause;

-- Where does the time of each rank go? Its parts add up to the time from the first to the last of
-- what it did; waiting and transfer are of exposed communication, and together where it is not
-- known who waited.
CREATE OR REPLACE PERFETTO VIEW where_time_goes AS
WITH
  summed AS (
    SELECT
      rank,
      run,
      sum(iif(name = 'Computing', dur, 0)) AS computing_ns,
      sum(iif(name GLOB 'Waiting*', dur, 0)) AS waiting_ns,
      sum(iif(name IN ('Transfer', 'Exposed communication'), dur, 0)) AS transfer_ns,
      sum(iif(name = 'Copies', dur, 0)) AS copies_ns,
      sum(iif(name GLOB 'Idle*', dur, 0)) AS idle_ns,
      sum(dur) AS total_ns
    FROM drawn
    WHERE layer = 'Where time goes'
    GROUP BY rank, run
  )
SELECT
  rank,
  run,
  round(total_ns / 1e6, 3) AS ms,
  round(computing_ns / 1e6, 3) AS computing_ms,
  round(waiting_ns / 1e6, 3) AS waiting_ms,
  round(transfer_ns / 1e6, 3) AS transfer_ms,
  round(copies_ns / 1e6, 3) AS copies_ms,
  round(idle_ns / 1e6, 3) AS idle_ms,
  computing_ns, waiting_ns, transfer_ns, copies_ns, idle_ns, total_ns
FROM summed
ORDER BY rank, run;

-- Of two runs that are compared: which steps became slower, or faster? The slower ones come first.
CREATE OR REPLACE PERFETTO VIEW which_steps_changed AS
SELECT
  name AS step,
  round(base_ns / 1e6, 3) AS base_ms,
  round(new_ns / 1e6, 3) AS new_ms,
  round((new_ns - base_ns) / 1e6, 3) AS more_ms,
  id, ts, dur, track_id, id AS slice_id
FROM (
  SELECT
    *,
    arg_number(args, 'step', 'base_ns') AS base_ns,
    arg_number(args, 'step', 'new_ns') AS new_ns
  FROM drawn
  WHERE rank IS NULL AND layer = 'Steps' AND label = 'Steps'
)
WHERE base_ns IS NOT NULL
ORDER BY new_ns - base_ns DESC, ts;

SELECT * FROM slowest_steps;
