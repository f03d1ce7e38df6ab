-- Runs that train nothing: devices of one worker exchange tensors, and how fast they do is measured. And
-- pipelines whose stages recompute differently.

ALTER TABLE runs
    -- Such a run has no model and no training; its work has the key `links`.
    ALTER COLUMN model_id DROP NOT NULL,
    ALTER COLUMN training DROP NOT NULL,
    ALTER COLUMN micro_batch_size DROP NOT NULL,
    -- The only worker that may claim it; NULL: any.
    ADD COLUMN only_worker_id text REFERENCES workers,
    -- What the backward pass of each stage computes again; empty where the training says it for all of them.
    ADD COLUMN stage_recompute jsonb NOT NULL DEFAULT '[]',
    DROP CONSTRAINT runs_target,
    ADD CONSTRAINT runs_target CHECK (num_nonnulls(profile_id, plan_id) = CASE WHEN work ? 'links' THEN 0 ELSE 1 END),
    ADD CONSTRAINT runs_training CHECK (
        num_nonnulls(model_id, training) = CASE WHEN work ? 'links' THEN 0 ELSE 2 END
        AND (NOT work ? 'links' OR only_worker_id IS NOT NULL));

-- The worker comes last, as what is tested in the index without a visit to the row.
DROP INDEX runs_queue;
CREATE INDEX runs_queue ON runs (device_kind, position, device_count, min_capacity_bytes, command, only_worker_id)
    WHERE state = 'queued';

ALTER TABLE operations
    -- The third kind: it measures links, for nobody in particular.
    ADD COLUMN measures_links boolean NOT NULL DEFAULT false,
    DROP CONSTRAINT operations_target,
    ADD CONSTRAINT operations_target CHECK (num_nonnulls(profile_id, plan_id) + measures_links::integer = 1);

-- Written once, never changed; the newest one of a worker counts.
CREATE TABLE link_measurements (
    -- One result per run: the last guard against a doubled one.
    run_id      text PRIMARY KEY REFERENCES runs,
    worker_id   text NOT NULL,
    -- Devices, pairs, groups, points, environment.
    measurement jsonb NOT NULL,
    create_time timestamptz NOT NULL DEFAULT now()
);

CREATE INDEX link_measurements_by_worker ON link_measurements (worker_id, create_time DESC);
