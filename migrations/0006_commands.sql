-- Training commands: run kinds of other frameworks. A worker's operator lists them in the worker's
-- configuration; a run may name one, and then only workers that offer it may claim the run.

ALTER TABLE workers ADD COLUMN commands text[] NOT NULL DEFAULT '{}';

-- NULL: Loadmaster's own rank trains.
ALTER TABLE runs ADD COLUMN command text;

-- The command comes last, as what is tested in the index without a visit to the row.
DROP INDEX runs_queue;
CREATE INDEX runs_queue ON runs (device_kind, position, device_count, min_capacity_bytes, command)
    WHERE state = 'queued';

-- A command may know no better ledger than the reserved or the device one; then peak_allocated_bytes holds the
-- peak of that ledger, and this column says which.
ALTER TABLE measurements ADD COLUMN peak_ledger text NOT NULL
    GENERATED ALWAYS AS (coalesce(measurement ->> 'peak_ledger', 'allocated')) STORED;
