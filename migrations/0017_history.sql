-- What a plan is found by: narrow rows, so that a filter reads a hundred thousand of them in the time of a call.

-- A predicted value over the measured one, less 1; none where one of them is missing or 0.
CREATE FUNCTION error_ratio(predicted double precision, measured double precision) RETURNS double precision
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN predicted > 0 AND measured > 0 THEN predicted / measured - 1 END
$$;

-- One row per plan, kept by triggers, so that the two cannot disagree. Words are as the plan's content writes them.
CREATE TABLE plan_facts (
    id                     text PRIMARY KEY REFERENCES plans ON DELETE CASCADE,
    create_time            timestamptz NOT NULL,
    profile_id             text NOT NULL,
    model_id               text NOT NULL,
    cluster_id             text,
    device_kind            text,
    device_count           bigint,
    objective              text,
    launcher               text,
    shape                  text,
    partition              text,
    solver                 text,
    predictor              text,
    "precision"            text,
    optimizer              text,
    schedule               text,
    recompute              text,
    micro_batch_size       bigint,
    micro_batches          bigint,
    global_batch_size      bigint GENERATED ALWAYS AS (micro_batch_size * micro_batches) STORED,
    ledger                 text,
    -- What people wrote on it, by keys: nothing else of a plan ever changes.
    labels                 jsonb NOT NULL DEFAULT '{}',
    -- Of the fullest device; more than a bigint holds is cut.
    predicted_peak_bytes   bigint NOT NULL,
    -- Of one iteration.
    predicted_seconds      double precision,
    hourly_price           double precision,
    -- Of the newest trial of the whole plan that measured something.
    measured_ledger        text,
    measured_peak_bytes    bigint,
    measured_seconds       double precision,
    -- Bytes of two ledgers are not compared.
    peak_error             double precision GENERATED ALWAYS AS (
        CASE WHEN ledger = measured_ledger THEN error_ratio(predicted_peak_bytes, measured_peak_bytes) END) STORED,
    seconds_error          double precision
                           GENERATED ALWAYS AS (error_ratio(predicted_seconds, measured_seconds)) STORED
);

-- Writes those of a plan.
CREATE FUNCTION note_facts(plan plans) RETURNS void LANGUAGE sql AS $$
    INSERT INTO plan_facts AS facts (
        id, create_time, profile_id, model_id, cluster_id, device_kind, device_count, objective, launcher, shape,
        partition, solver, predictor, "precision", optimizer, schedule, recompute, micro_batch_size, micro_batches,
        ledger, predicted_peak_bytes, predicted_seconds, hourly_price)
    SELECT plan.id, plan.create_time, plan.profile_id, plan.model_id, substr(of #>> '{asked,cluster}', length('clusters/') + 1),
           of ->> 'device_kind',
           (SELECT sum((devices ->> 'count')::bigint) FROM jsonb_array_elements(of -> 'devices') AS devices),
           of #>> '{asked,objective}', of #>> '{asked,launcher}', of #>> '{asked,shape}', of ->> 'partition',
           of ->> 'solver', of ->> 'predictor', of #>> '{training,precision}', of #>> '{training,optimizer,kind}',
           of #>> '{training,schedule}', of #>> '{training,recompute}',
           (of #>> '{training,micro_batch_size}')::bigint, (of #>> '{training,micro_batches}')::bigint,
           of ->> 'ledger', least(coalesce((of ->> 'peak')::numeric, 0), 9223372036854775807)::bigint,
           (of ->> 'iteration_seconds')::double precision, (of ->> 'hourly_price')::double precision
    FROM (SELECT plan.summary AS of) AS of_plan
    ON CONFLICT (id) DO UPDATE
    SET (create_time, profile_id, model_id, cluster_id, device_kind, device_count, objective, launcher, shape, partition,
         solver, predictor, "precision", optimizer, schedule, recompute, micro_batch_size, micro_batches, ledger,
         predicted_peak_bytes, predicted_seconds, hourly_price)
      = (excluded.create_time, excluded.profile_id, excluded.model_id, excluded.cluster_id, excluded.device_kind,
         excluded.device_count, excluded.objective, excluded.launcher, excluded.shape, excluded.partition,
         excluded.solver, excluded.predictor, excluded."precision", excluded.optimizer, excluded.schedule,
         excluded.recompute, excluded.micro_batch_size, excluded.micro_batches, excluded.ledger,
         excluded.predicted_peak_bytes, excluded.predicted_seconds, excluded.hourly_price)
$$;

CREATE FUNCTION note_plan() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM note_facts(NEW);
    RETURN NULL;
END
$$;

CREATE TRIGGER plans_noted AFTER INSERT OR UPDATE ON plans FOR EACH ROW EXECUTE FUNCTION note_plan();
-- A plan without its row is found by nobody: whoever copies plans with triggers off gets it, too.
ALTER TABLE plans ENABLE ALWAYS TRIGGER plans_noted;

-- What the newest trial of a whole plan measured that measured something: the highest peak of its devices, none where they
-- are of several ledgers, and the seconds of its slowest rank.
CREATE FUNCTION measured_of_plan(plan text, OUT ledger text, OUT peak bigint, OUT seconds double precision)
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN min(m.peak_ledger) = max(m.peak_ledger) THEN min(m.peak_ledger) END,
           CASE WHEN min(m.peak_ledger) = max(m.peak_ledger) THEN max(m.peak_allocated_bytes) END,
           CASE WHEN max(m.iteration_seconds) > 0 THEN max(m.iteration_seconds) END
    FROM (SELECT id FROM runs WHERE plan_id = plan AND state = 'succeeded' AND NOT work ? 'solo'
          ORDER BY create_time DESC, id DESC LIMIT 1) AS newest
    JOIN measurements AS m ON m.run_id = newest.id
$$;

-- The row is locked first, and what was measured is read by a statement of its own: of two trials that end at the same
-- moment the second sees the first.
CREATE FUNCTION note_trial() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM plan_facts WHERE id = NEW.plan_id FOR UPDATE;
    UPDATE plan_facts SET (measured_ledger, measured_peak_bytes, measured_seconds)
        = (SELECT ledger, peak, seconds FROM measured_of_plan(NEW.plan_id))
    WHERE id = NEW.plan_id;
    RETURN NULL;
END
$$;

CREATE TRIGGER runs_tried AFTER UPDATE OF state ON runs FOR EACH ROW
    WHEN (NEW.plan_id IS NOT NULL AND NEW.state = 'succeeded') EXECUTE FUNCTION note_trial();

-- Those that are there.
SELECT note_facts(plans) FROM plans;
UPDATE plan_facts SET (measured_ledger, measured_peak_bytes, measured_seconds)
    = (SELECT ledger, peak, seconds FROM measured_of_plan(plan_facts.id))
WHERE id IN (SELECT plan_id FROM runs WHERE plan_id IS NOT NULL AND state = 'succeeded');

ALTER TABLE profiles ADD COLUMN labels jsonb NOT NULL DEFAULT '{}';
CREATE INDEX profiles_by_labels ON profiles USING gin (labels);

-- Orders, each with the order of creation behind it; what is not set comes last whichever way, which takes two where it may
-- be missing.
CREATE INDEX plan_facts_by_time ON plan_facts (create_time, id);
CREATE INDEX plan_facts_by_peak ON plan_facts (predicted_peak_bytes, create_time, id);
CREATE INDEX plan_facts_by_seconds ON plan_facts (predicted_seconds, create_time, id);
CREATE INDEX plan_facts_by_seconds_down ON plan_facts (predicted_seconds DESC NULLS LAST, create_time DESC, id DESC);
-- What few plans have.
CREATE INDEX plan_facts_by_profile ON plan_facts (profile_id, create_time, id);
CREATE INDEX plan_facts_by_model ON plan_facts (model_id, create_time, id);
CREATE INDEX plan_facts_by_cluster ON plan_facts (cluster_id, create_time, id) WHERE cluster_id IS NOT NULL;
CREATE INDEX plan_facts_by_solver ON plan_facts (solver, create_time, id);
CREATE INDEX plan_facts_by_launcher ON plan_facts (launcher, create_time, id);
CREATE INDEX plan_facts_by_objective ON plan_facts (objective, create_time, id);
CREATE INDEX plan_facts_by_kind ON plan_facts (device_kind, create_time, id);
CREATE INDEX plan_facts_by_labels ON plan_facts USING gin (labels);
CREATE INDEX plan_facts_measured ON plan_facts (measured_seconds) WHERE measured_seconds IS NOT NULL;
