-- CPU slots share the cores of their host, and no more of them work at once than have cores.

ALTER TABLE workers
    -- Cores that its processes may use; 0 where it did not say.
    ADD COLUMN cores integer NOT NULL DEFAULT 0;
