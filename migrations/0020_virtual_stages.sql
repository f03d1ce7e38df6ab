-- Devices that have several stages of a plan in turn are counted once.

-- Of a plan's content. Older plans lack some of it.
CREATE OR REPLACE FUNCTION plan_summary(content jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    WITH stages AS (
        SELECT stage, position,
               (stage #>> '{config,last_layer}')::bigint - (stage #>> '{config,first_layer}')::bigint + 1 AS layers,
               coalesce((stage #>> '{config,data_degree}')::bigint, 1) AS data_degree,
               coalesce((stage #>> '{config,tensor_degree}')::bigint, 1) AS tensor_degree
        FROM jsonb_array_elements(content -> 'stages') WITH ORDINALITY AS of_plan(stage, position)
    ), first_stages AS (
        -- Stages that are interleaved take turns on the devices of the first ones.
        SELECT * FROM stages
        WHERE position <= (SELECT count(*) FROM stages) / coalesce((content ->> 'virtual_stages')::bigint, 1)
    ), devices AS (
        SELECT position, 1 AS count, device -> 'kind' AS kind, device -> 'capacity' AS capacity
        FROM first_stages CROSS JOIN jsonb_array_elements(stage -> 'devices') AS device
        UNION ALL
        -- Stored before devices were named.
        SELECT position, data_degree * tensor_degree, content -> 'device_kind', stage -> 'capacity'
        FROM first_stages WHERE coalesce(jsonb_array_length(stage -> 'devices'), 0) = 0
    ), groups AS (
        SELECT min(position) AS position, sum(count) AS count, kind, capacity FROM devices GROUP BY kind, capacity
    )
    SELECT jsonb_build_object(
        'training', content -> 'training',
        'device_kind', content -> 'device_kind',
        'predictor', content -> 'predictor',
        'ledger', content -> 'ledger',
        'solver', content -> 'solver',
        'asked', coalesce(content -> 'asked', '{}') - 'constraints',
        'iteration_seconds', content #> '{found,iteration,seconds}',
        'iteration_margin', content #> '{found,iteration,margin}',
        'hourly_price', content #> '{found,hourly_price}',
        'peak', (SELECT max((stage ->> 'predicted_peak')::numeric) FROM stages),
        'partition', (SELECT string_agg(
                          layers || CASE data_degree WHEN 1 THEN '' ELSE 'd' || data_degree END
                                 || CASE tensor_degree WHEN 1 THEN '' ELSE 't' || tensor_degree END,
                          '-' ORDER BY position) FROM stages),
        'devices', (SELECT jsonb_agg(jsonb_build_object('count', count, 'kind', kind, 'capacity', capacity)
                                     ORDER BY position, kind, capacity) FROM groups))
$$;
