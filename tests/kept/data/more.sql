-- States that take a broken worker, a lost one or a long wait, made of rows that the planner wrote.

-- Nothing of it ends while a test looks: leases and waits last until 2126.
CREATE TEMPORARY TABLE kept_failures AS SELECT jsonb_agg(failure || jsonb_build_object(
    'worker', 'workers/w', 'lease_token', number, 'time', '2026-11-22T10:00:00.000000Z') ORDER BY number) AS failures
FROM (VALUES
    (1, '{"kind": "crashed", "signal": 11, "message": "a rank was killed by signal 11", "stage_index": 0}'::jsonb),
    (2, '{"kind": "exited", "code": 3, "message": "a rank ended with code 3", "stage_index": 1}'),
    (3, '{"kind": "hung", "message": "the deadline of 600 seconds passed", "stage_index": null}'),
    (4, '{"kind": "not_started", "message": "no such file", "stage_index": null}'),
    (5, '{"kind": "lease_expired", "message": "not heard of", "stage_index": null}'),
    (6, '{"kind": "handed_back", "message": "the worker stops", "stage_index": null}'),
    (7, '{"kind": "result_refused", "message": "it contradicts its run", "stage_index": null}'),
    (8, '{"kind": "out_of_memory", "message": "out of memory", "stage_index": 0, "out_of_memory":
         {"asked": 5, "held": 6, "allowed": 7, "ledger": "allocated", "phase": "backward", "layer": 1}}')
) AS of_kinds(number, failure);

INSERT INTO profiles (id, model_id, settings, state, missing, create_time, end_time)
SELECT state, model_id, settings || jsonb_build_object('name', 'profiles/' || state), state, missing,
       '2026-11-22 10:00:00Z', CASE WHEN state <> 'running' THEN timestamptz '2026-11-22 10:05:00Z' END
FROM (VALUES ('running', '{}'::text[]), ('incomplete', '{"layer 1 at micro-batch size 2"}'), ('cancelled', '{}'))
     AS made(state, missing), (SELECT model_id, settings FROM profiles WHERE id = 'tiny') AS tiny;

INSERT INTO operations (id, profile_id, state, error_code, error_reason, error_message, cancel_requested, create_time,
                        end_time)
VALUES ('made-running', 'running', 'running', NULL, NULL, NULL, false, '2026-11-22 10:00:00Z', NULL),
       ('made-failed', 'incomplete', 'failed', 10, 'RUN_FAILED', 'a run failed', false,
        '2026-11-22 10:00:00Z', '2026-11-22 10:05:00Z'),
       ('made-cancelled', 'cancelled', 'cancelled', NULL, NULL, NULL, true,
        '2026-11-22 10:00:00Z', '2026-11-22 10:05:00Z');

CREATE FUNCTION pg_temp.copy(made text, of_operation text, of_state text, with_failures jsonb) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO runs (id, operation_id, profile_id, model_id, training, work, iterations, device_kind, device_count,
                      min_capacity_bytes, deadline_seconds, state, not_before, attempts, hand_backs, lease_token,
                      worker_id, lease_expires_at, deadline_at, progress, phase, failures, device_seconds,
                      create_time, start_time, end_time, smallest_micro_batch_size, stage_recompute)
    SELECT made, of_operation, (SELECT profile_id FROM operations WHERE id = of_operation), model_id, training, work,
           iterations, 'nobody has it', device_count, min_capacity_bytes, deadline_seconds, of_state,
           '2126-01-01 00:00:00Z', 1, 1, 9, CASE WHEN of_state <> 'queued' THEN 'w' END,
           CASE WHEN of_state = 'running' THEN timestamptz '2126-01-01 00:00:00Z' END,
           CASE WHEN of_state = 'running' THEN timestamptz '2126-01-01 00:00:00Z' END,
           CASE WHEN of_state = 'running' THEN 0.25 ELSE 0 END,
           CASE WHEN of_state = 'running' THEN 'forward' ELSE '' END,
           with_failures, 1.5, '2026-11-22 10:00:00Z',
           CASE WHEN of_state <> 'queued' THEN timestamptz '2026-11-22 10:01:00Z' END,
           CASE WHEN of_state NOT IN ('queued', 'running') THEN timestamptz '2026-11-22 10:04:00Z' END, 1, '[]'
    FROM runs WHERE profile_id = 'tiny' ORDER BY position LIMIT 1
$$;
SELECT pg_temp.copy('made-queued', 'made-running', 'queued', failures - 7) FROM kept_failures;
SELECT pg_temp.copy('made-leased', 'made-running', 'running', '[]');
SELECT pg_temp.copy('made-too-large', 'made-failed', 'out_of_memory', jsonb_build_array(failures -> 7))
FROM kept_failures;
SELECT pg_temp.copy('made-parked', 'made-failed', 'parked', failures - 7) FROM kept_failures;
SELECT pg_temp.copy('made-cancelled', 'made-cancelled', 'cancelled', '[]');

UPDATE workers SET heartbeat_time = '2126-01-01 00:00:00Z';
CREATE TEMPORARY TABLE kept_workers AS SELECT * FROM workers WHERE id = 'w';
UPDATE kept_workers SET connection = NULL;
UPDATE kept_workers SET id = 'draining', state = 'draining', drain_requested = true;
INSERT INTO workers SELECT * FROM kept_workers;
UPDATE kept_workers SET id = 'lost', state = 'lost', heartbeat_time = '2026-11-22 10:00:00Z', commands = '{torchrun}';
INSERT INTO workers SELECT * FROM kept_workers;
UPDATE kept_workers SET id = 'gone', state = 'gone', drain_requested = false;
INSERT INTO workers SELECT * FROM kept_workers;
