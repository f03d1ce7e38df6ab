-- Profiles that another planner or another tool measured.

-- Chains of which only names are known: planned, never trained. `model` is then no model that ranks can
-- build, and lists of models leave it out.
ALTER TABLE models ADD COLUMN opaque boolean NOT NULL DEFAULT false;

CREATE TABLE documents (
    profile_id text PRIMARY KEY REFERENCES profiles,
    -- Of the content: the same document under the same name is the same profile.
    digest     text NOT NULL,
    document   jsonb NOT NULL
);
