-- Lists read what tells plans apart, never the whole plan; and what nothing rests on can be deleted.

-- Of a plan's content. Older plans lack some of it.
CREATE FUNCTION plan_summary(content jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    WITH stages AS (
        SELECT stage, position,
               (stage #>> '{config,last_layer}')::bigint - (stage #>> '{config,first_layer}')::bigint + 1 AS layers,
               coalesce((stage #>> '{config,data_degree}')::bigint, 1) AS data_degree,
               coalesce((stage #>> '{config,tensor_degree}')::bigint, 1) AS tensor_degree
        FROM jsonb_array_elements(content -> 'stages') WITH ORDINALITY AS of_plan(stage, position)
    ), devices AS (
        SELECT position, 1 AS count, device -> 'kind' AS kind, device -> 'capacity' AS capacity
        FROM stages CROSS JOIN jsonb_array_elements(stage -> 'devices') AS device
        UNION ALL
        -- Stored before devices were named.
        SELECT position, data_degree * tensor_degree, content -> 'device_kind', stage -> 'capacity'
        FROM stages WHERE coalesce(jsonb_array_length(stage -> 'devices'), 0) = 0
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

-- The plans that a plan names: its alternatives, and the points of its front. As ids.
CREATE FUNCTION plan_names(content jsonb) RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT coalesce(array_agg(DISTINCT substr(named ->> 'plan', length('plans/') + 1)), '{}')
    FROM (SELECT jsonb_array_elements(content #> '{found,alternatives}') AS named
          UNION ALL
          SELECT jsonb_array_elements(content #> '{found,front}')) AS besides
    WHERE named ->> 'plan' IS NOT NULL
$$;

-- Read out of the document, so that the two cannot disagree.
ALTER TABLE plans
    ADD COLUMN summary jsonb NOT NULL GENERATED ALWAYS AS (plan_summary(content)) STORED,
    ADD COLUMN names text[] NOT NULL GENERATED ALWAYS AS (plan_names(content)) STORED;

-- What rests on a profile, and on a plan.
CREATE INDEX plans_by_profile ON plans (profile_id);
CREATE INDEX plans_naming ON plans USING gin (names);
CREATE INDEX operations_by_plan ON operations (plan_id) WHERE plan_id IS NOT NULL;

-- What was measured outlives what it was measured for: runs of a deleted profile or plan belong to none, and the
-- operations that ended with it are deleted too.
ALTER TABLE runs
    DROP CONSTRAINT runs_target,
    ADD CONSTRAINT runs_target CHECK (
        num_nonnulls(profile_id, plan_id) = CASE WHEN work ? 'links' THEN 0 ELSE 1 END
        OR num_nonnulls(profile_id, plan_id) = 0 AND end_time IS NOT NULL);

ALTER TABLE operations
    DROP CONSTRAINT operations_target,
    ADD CONSTRAINT operations_target CHECK (
        num_nonnulls(profile_id, plan_id) + measures_links::integer = 1
        OR num_nonnulls(profile_id, plan_id) = 0 AND deleted);
