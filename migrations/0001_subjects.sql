-- What is measured and what is planned: models, profiles, plans.
--
-- Conventions of all migrations: ids are the part of a resource name after the slash; states are
-- text with a CHECK, so that a dump reads by itself and a new state is one changed constraint; bytes
-- end in _bytes, seconds in _seconds; every time is the database's clock, never a planner's.

CREATE TABLE models (
    -- Derived from the content: family, dash, 8 hexadecimal digits.
    id          text PRIMARY KEY,
    model       jsonb NOT NULL,
    -- What it was built from.
    source      jsonb NOT NULL,
    create_time timestamptz NOT NULL DEFAULT now()
);

-- All measurements of one model under one training spec on one kind of device.
CREATE TABLE profiles (
    id                text PRIMARY KEY,
    model_id          text NOT NULL REFERENCES models,
    -- What was asked for, whole: the runs can be laid out from it again.
    settings          jsonb NOT NULL,
    state             text NOT NULL DEFAULT 'running'
                      CHECK (state IN ('running', 'complete', 'incomplete', 'cancelled')),
    -- What the campaign's predictor lacks, for people.
    missing           text[] NOT NULL DEFAULT '{}',
    create_time       timestamptz NOT NULL DEFAULT now(),
    -- When its last run ended; none while it is measured, again after a resumption.
    end_time          timestamptz,

    -- Columns worth querying are read out of the document, so that the two cannot disagree.
    campaign          text NOT NULL GENERATED ALWAYS AS (settings ->> 'campaign') STORED,
    device_kind       text NOT NULL GENERATED ALWAYS AS (settings ->> 'device_kind') STORED
);

CREATE INDEX profiles_by_time ON profiles (create_time, id);

-- A plan's content never changes, and its id is derived from it.
CREATE TABLE plans (
    id          text PRIMARY KEY,
    profile_id  text NOT NULL REFERENCES profiles,
    model_id    text NOT NULL REFERENCES models,
    content     jsonb NOT NULL,
    create_time timestamptz NOT NULL DEFAULT now()
);

CREATE INDEX plans_by_time ON plans (create_time, id);
