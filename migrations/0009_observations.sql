-- What plans needed when they were really trained: trials of several plans by one operation, and what users
-- report of their own training runs.

CREATE TABLE observations (
    id                  text PRIMARY KEY,
    plan_id             text NOT NULL REFERENCES plans,
    -- Whole: figures with their ledgers, iterations, kind of device, source.
    observation         jsonb NOT NULL,
    -- Makes a retried call find the first call's observation.
    request_id          uuid,
    request_fingerprint text,
    create_time         timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT observations_request_id_key UNIQUE (request_id),

    -- Columns worth querying are read out of the document, so that the two cannot disagree.
    device_kind         text NOT NULL GENERATED ALWAYS AS (observation ->> 'device_kind') STORED
);

CREATE INDEX observations_by_plan ON observations (plan_id, create_time, id);
CREATE INDEX observations_by_time ON observations (create_time, id);

-- The newest trials, whatever the history of profiling.
CREATE INDEX runs_trials ON runs (create_time, id) WHERE plan_id IS NOT NULL AND state = 'succeeded';
