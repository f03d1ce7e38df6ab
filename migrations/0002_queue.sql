-- The queue: operations, the runs that they wait for, and the workers that lease runs.

CREATE TABLE operations (
    id                  text PRIMARY KEY,
    -- What it makes: exactly one of the two.
    profile_id          text REFERENCES profiles,
    plan_id             text REFERENCES plans,
    state               text NOT NULL DEFAULT 'running'
                        CHECK (state IN ('running', 'succeeded', 'failed', 'cancelled')),
    error_code          integer,
    error_reason        text,
    error_message       text,
    -- Cancelled by a user while runs were held by workers; the state follows when they let go.
    cancel_requested    boolean NOT NULL DEFAULT false,
    -- How often runs were added because of what the first ones showed. A fence for those who add them.
    rounds              integer NOT NULL DEFAULT 0,
    -- Makes a retried call find the first call's operation, also after it was deleted.
    request_id          uuid,
    request_fingerprint text,
    -- Deleted by a user. The row stays: its runs and measurements are nobody's to lose.
    deleted             boolean NOT NULL DEFAULT false,
    create_time         timestamptz NOT NULL DEFAULT now(),
    end_time            timestamptz,
    CONSTRAINT operations_target CHECK (num_nonnulls(profile_id, plan_id) = 1),
    CONSTRAINT operations_error CHECK ((state = 'failed') = (error_code IS NOT NULL)),
    CONSTRAINT operations_request_id_key UNIQUE (request_id)
);

-- A profile is measured by one operation at a time; resuming it begins another.
CREATE UNIQUE INDEX operations_measuring ON operations (profile_id)
    WHERE profile_id IS NOT NULL AND state = 'running';
-- The newest operation of a profile.
CREATE INDEX operations_by_profile ON operations (profile_id, create_time) WHERE profile_id IS NOT NULL;
CREATE INDEX operations_by_time ON operations (create_time, id);
-- Looked at every second: must not grow with history.
CREATE INDEX operations_running ON operations (create_time) WHERE state = 'running';

CREATE TABLE runs (
    id                 text PRIMARY KEY,
    -- Order of the queue. Not create_time: a second index in that order, which lists need, tempts the
    -- planner to look for the next run in the whole history.
    position           bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    operation_id       text NOT NULL REFERENCES operations,
    profile_id         text REFERENCES profiles,
    plan_id            text REFERENCES plans,
    -- The model is joined at the claim: 100,000 copies of a layer list would be the largest table.
    model_id           text NOT NULL REFERENCES models,
    training           jsonb NOT NULL,
    work               jsonb NOT NULL,
    iterations         integer NOT NULL CHECK (iterations > 0),
    device_kind        text NOT NULL,
    device_count       integer NOT NULL CHECK (device_count > 0),
    min_capacity_bytes bigint NOT NULL CHECK (min_capacity_bytes >= 0),
    deadline_seconds   integer NOT NULL CHECK (deadline_seconds > 0),

    state              text NOT NULL DEFAULT 'queued'
                       CHECK (state IN ('queued', 'running', 'succeeded', 'out_of_memory', 'parked', 'cancelled')),
    -- Back-off after a failure: nobody may claim it earlier.
    not_before         timestamptz NOT NULL DEFAULT now(),
    -- Claims that counted as attempts; handing back does not count.
    attempts           integer NOT NULL DEFAULT 0,
    hand_backs         integer NOT NULL DEFAULT 0,
    -- The fence. Only ever grows: one step per claim.
    lease_token        bigint NOT NULL DEFAULT 0,
    -- Holds it or held it last. No reference: a result outlives its worker's row.
    worker_id          text,
    -- Renewed by heartbeats.
    lease_expires_at   timestamptz,
    -- Hard limit of this attempt, set at the claim: a live worker can hold a dead run.
    deadline_at        timestamptz,
    cancel_requested   boolean NOT NULL DEFAULT false,

    progress           double precision NOT NULL DEFAULT 0,
    phase              text NOT NULL DEFAULT '',
    -- Oldest first; bounded by the attempt and hand-back limits.
    failures           jsonb NOT NULL DEFAULT '[]',
    -- Seconds that devices were held, added up over devices and attempts.
    device_seconds     double precision NOT NULL DEFAULT 0,
    create_time        timestamptz NOT NULL DEFAULT now(),
    start_time         timestamptz,
    end_time           timestamptz,

    CONSTRAINT runs_target CHECK (num_nonnulls(profile_id, plan_id) = 1),
    CONSTRAINT runs_lease CHECK (
        state <> 'running' OR (worker_id IS NOT NULL AND lease_expires_at IS NOT NULL AND deadline_at IS NOT NULL)
    ),
    CONSTRAINT runs_end CHECK ((state IN ('queued', 'running')) = (end_time IS NULL))
)
-- A heartbeat changes only columns that no index holds, so with room on the page it writes no index.
WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

-- The claim. A run wants one kind of device, so runs of different kinds never compete and each kind
-- is a queue of its own. device_count and min_capacity_bytes come last: they are tested in the index,
-- without a visit to the row.
CREATE INDEX runs_queue ON runs (device_kind, position, device_count, min_capacity_bytes)
    WHERE state = 'queued';
-- The reaper and "what does this worker hold". As large as the fleet, whatever the history.
-- lease_expires_at is left out on purpose: heartbeats change it.
CREATE INDEX runs_leased ON runs (worker_id) WHERE state = 'running';
-- Counts by state, and cancellation.
CREATE INDEX runs_by_operation ON runs (operation_id, state);
CREATE INDEX runs_by_plan ON runs (plan_id) WHERE plan_id IS NOT NULL;
CREATE INDEX runs_by_profile ON runs (profile_id) WHERE profile_id IS NOT NULL;
CREATE INDEX runs_by_time ON runs (create_time, id);

CREATE TABLE workers (
    id               text PRIMARY KEY,
    state            text NOT NULL CHECK (state IN ('alive', 'draining', 'lost', 'gone')),
    -- Survives being lost for a while: a drained worker that comes back still drains.
    drain_requested  boolean NOT NULL DEFAULT false,
    devices          jsonb NOT NULL,
    version          text NOT NULL,
    libtorch_version text NOT NULL,
    host             text NOT NULL,
    -- Random per process start: tells a restart from a reconnect.
    session_id       text NOT NULL,
    create_time      timestamptz NOT NULL DEFAULT now(),
    heartbeat_time   timestamptz NOT NULL DEFAULT now()
)
WITH (fillfactor = 50);

-- A hint for planners that wait for work; polling finds what a lost hint does not. NOTIFY takes a
-- database-wide lock at commit, so there is at most one per statement and none per heartbeat, claim or
-- result: the triggers look at columns that only re-queueing and cancelling set. They cannot look at
-- rows as well (a column list excludes transition tables), so a statement that matched no row notifies too.
CREATE FUNCTION notify_runs() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('loadmaster_runs', '');
    RETURN NULL;
END
$$;

CREATE TRIGGER runs_inserted AFTER INSERT ON runs
    FOR EACH STATEMENT EXECUTE FUNCTION notify_runs();
CREATE TRIGGER runs_queued_again_or_cancelled AFTER UPDATE OF not_before, cancel_requested ON runs
    FOR EACH STATEMENT EXECUTE FUNCTION notify_runs();
