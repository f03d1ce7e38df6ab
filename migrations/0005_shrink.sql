-- Runs that do not fit are repeated at a smaller micro-batch size.

ALTER TABLE runs
    -- The smallest size to try, and the step between sizes; none for a run that is not repeated.
    ADD COLUMN smallest_micro_batch_size integer CHECK (smallest_micro_batch_size > 0),
    -- The run that did not fit and that this one repeats.
    ADD COLUMN shrunk_from text REFERENCES runs;

-- Two sizes of one work that do not fit at the same moment must not be repeated at the same smaller one: whoever
-- comes second looks again and takes the next.
CREATE UNIQUE INDEX runs_shrunk ON runs (profile_id, work_key, micro_batch_size) WHERE shrunk_from IS NOT NULL;
