-- Memory actions of a run's stages, in their order; an empty list where none does anything.
ALTER TABLE runs ADD COLUMN stage_actions jsonb NOT NULL DEFAULT '[]';
