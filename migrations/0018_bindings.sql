-- Plans on the very nodes that schedulers gave.

-- A binding never changes: its id is its content's. It says where one plan is, and goes with it.
CREATE TABLE bindings (
    id          text PRIMARY KEY,
    plan_id     text NOT NULL REFERENCES plans ON DELETE CASCADE,
    content     jsonb NOT NULL,
    -- What lists show: all but the stages and the devices without a rank, which are read one binding at a time.
    nodes       text[] NOT NULL,
    create_time timestamptz NOT NULL DEFAULT now()
);

CREATE INDEX bindings_by_plan ON bindings (plan_id, create_time, id);
CREATE INDEX bindings_by_time ON bindings (create_time, id);
