-- What was measured once serves every profile that needs the same.

ALTER TABLE runs
    -- What it trains and how, but for the micro-batch size, as a content id: runs of equal keys and sizes
    -- measure the same, whatever model and profile they were made for. None where nothing may be reused.
    ADD COLUMN work_key text,
    ADD COLUMN micro_batch_size integer NOT NULL
        GENERATED ALWAYS AS ((training ->> 'micro_batch_size')::integer) STORED;

-- "Has anybody measured this?" Only results count, so a queue of any length costs it nothing.
CREATE INDEX runs_by_work ON runs (work_key, micro_batch_size) WHERE state = 'succeeded';

-- The runs that a profile is made of: its own, and those of others.
CREATE TABLE profile_runs (
    profile_id   text NOT NULL REFERENCES profiles,
    run_id       text NOT NULL REFERENCES runs,
    -- What to add to the run's indices of layers to have those of this profile's model: equal stages of
    -- other models are elsewhere in their chains.
    layer_offset integer NOT NULL DEFAULT 0,
    -- Predictions are held against it, and nothing is learnt from it.
    held_out     boolean NOT NULL DEFAULT false,
    -- Made for another profile.
    reused       boolean NOT NULL DEFAULT false,

    PRIMARY KEY (profile_id, run_id)
);

-- The environment that a worker measures in decides what may be reused, besides the kind and driver of
-- its devices.
ALTER TABLE workers
    ADD COLUMN cuda_version text NOT NULL DEFAULT '',
    -- Threads that each of its ranks computes with; 0 where the worker did not say.
    ADD COLUMN threads integer NOT NULL DEFAULT 0;
