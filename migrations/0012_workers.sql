-- Results that contradict their runs, campaigns that are stopped, two workers of one name.

-- Whether what is stored of a succeeded run is what the run asked for. Earlier releases stored whatever a worker
-- sent, so that a profile could lack for ever what it seemed to have. The planner checks much more before it
-- stores a result; this is what the columns tell. A run that measured links has no such measurements.
CREATE FUNCTION is_sound(run runs) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT count(*) = run.device_count AND coalesce(bool_and(
        m.micro_batch_size = run.micro_batch_size
        AND m.device_kind = run.device_kind
        AND m.iteration_seconds > 0 AND m.iteration_seconds < 'infinity'
        AND m.peak_allocated_bytes > 0
        AND (run.device_kind <> 'cpu' OR m.peak_allocated_bytes <= m.capacity_bytes)
        AND m.solo = (run.work ? 'solo')
        AND m.measurement -> 'stage'
            = coalesce(run.work #> '{solo,stage}', run.work -> 'partitioning' -> m.stage_index)
        AND m.shard < m.data_degree * m.tensor_degree
        AND (run.command IS NOT NULL
             OR jsonb_array_length(m.measurement -> 'layers') = m.last_layer + 1 - m.first_layer
                AND (m.measurement ? 'tape') = (m.solo AND m.first_layer = m.last_layer))), false)
    FROM measurements AS m WHERE m.run_id = run.id
$$;

-- A link run names the worker that may claim it, and outlives that worker's row.
ALTER TABLE runs DROP CONSTRAINT runs_only_worker_id_fkey;

ALTER TABLE workers
    -- The stream that speaks for the worker, random per stream; NULL: it has none.
    ADD COLUMN connection text;

-- Of profiles whose runs failed alike: why the others were not made. The operation ends with it.
ALTER TABLE operations ADD COLUMN stopped text;
