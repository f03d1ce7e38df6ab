-- Plans are found by what users report of their trainings, as they are by what trials measured.

ALTER TABLE plan_facts
    -- Seconds of an iteration by the newest report that tells them, and the kind of the devices that they are of.
    ADD COLUMN reported_seconds double precision,
    ADD COLUMN reported_kind text,
    -- Seconds of another kind of device are no measure of those that were predicted.
    ADD COLUMN report_error double precision GENERATED ALWAYS AS (
        CASE WHEN reported_kind = device_kind THEN error_ratio(predicted_seconds, reported_seconds) END) STORED;

CREATE FUNCTION reported_of_plan(plan text, OUT seconds double precision, OUT kind text) LANGUAGE sql STABLE AS $$
    SELECT (observation ->> 'iteration_seconds')::double precision, device_kind FROM observations
    WHERE plan_id = plan AND observation ->> 'iteration_seconds' IS NOT NULL
    ORDER BY create_time DESC, id DESC LIMIT 1
$$;

-- The row is locked first, as for a trial: of two reports at the same moment the second sees the first.
CREATE FUNCTION note_report() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    plan text := coalesce(NEW.plan_id, OLD.plan_id);
BEGIN
    PERFORM FROM plan_facts WHERE id = plan FOR UPDATE;
    UPDATE plan_facts SET (reported_seconds, reported_kind) = (SELECT seconds, kind FROM reported_of_plan(plan))
    WHERE id = plan;
    RETURN NULL;
END
$$;

CREATE TRIGGER observations_noted AFTER INSERT OR DELETE ON observations FOR EACH ROW EXECUTE FUNCTION note_report();
-- Whoever copies reports with triggers off finds plans by them, too.
ALTER TABLE observations ENABLE ALWAYS TRIGGER observations_noted;

-- Those that are there.
UPDATE plan_facts SET (reported_seconds, reported_kind) = (SELECT seconds, kind FROM reported_of_plan(plan_facts.id))
WHERE id IN (SELECT plan_id FROM observations);

CREATE INDEX plan_facts_reported ON plan_facts (reported_seconds) WHERE reported_seconds IS NOT NULL;
