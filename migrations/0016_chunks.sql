-- How a run's one stage trains the whole model in chunks; null where it does not.
ALTER TABLE runs ADD COLUMN chunks jsonb;

-- What it yields says what its chunks moved and held, and is no recording of a layer.
CREATE OR REPLACE FUNCTION is_sound(run runs) RETURNS boolean LANGUAGE sql STABLE AS $$
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
        AND (m.measurement ? 'chunks') = (run.chunks IS NOT NULL)
        AND (run.command IS NOT NULL
             OR jsonb_array_length(m.measurement -> 'layers') = m.last_layer + 1 - m.first_layer
                AND (m.measurement ? 'tape')
                    = (m.solo AND m.first_layer = m.last_layer AND run.chunks IS NULL))), false)
    FROM measurements AS m WHERE m.run_id = run.id
$$;
