-- Memory actions of a run's stages, in their order; an empty list where none does anything.
ALTER TABLE runs ADD COLUMN stage_actions jsonb NOT NULL DEFAULT '[]';

-- Memory of the host that they take, all devices of the run together.
ALTER TABLE runs ADD COLUMN host_memory_bytes bigint NOT NULL DEFAULT 0 CHECK (host_memory_bytes >= 0);

-- With it, so that a run that finds no room there is passed over without a visit to its row.
DROP INDEX runs_queue;
CREATE INDEX runs_queue ON runs (device_kind, position, device_count, min_capacity_bytes, command, only_worker_id,
                                 host_memory_bytes)
    WHERE state = 'queued';

ALTER TABLE workers
    -- Memory of its host that it offers beside its devices.
    ADD COLUMN host_memory_bytes bigint NOT NULL DEFAULT 0 CHECK (host_memory_bytes >= 0),
    -- How fast the copies of its CPU slots may be.
    ADD COLUMN copy_pace jsonb NOT NULL DEFAULT '{}';
