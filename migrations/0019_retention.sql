-- What is old and in nobody's way may be pruned: plans that nobody asked for again, by a schedule that planners share.

-- When a plan was last the answer to a question, to the hour: a plan that is found again keeps its first time, and is as young
-- as a new one all the same.
ALTER TABLE plan_facts ADD COLUMN asked_time timestamptz NOT NULL DEFAULT now();
UPDATE plan_facts SET asked_time = create_time;

-- When something that is done from time to time was last begun, by whichever planner.
CREATE TABLE schedules (
    name       text PRIMARY KEY,
    begin_time timestamptz NOT NULL
);
