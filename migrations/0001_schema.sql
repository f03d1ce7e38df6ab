-- All tables of Loadmaster, by subject: models, profiles, plans, operations, runs, measurements, workers, clusters and links,
-- reports, placements, facts of plans, retention. `server/src/store/mod.rs` says who writes which of them.
--
-- Conventions: An id is the part of a resource name after the slash. A state is a text with a CHECK, so that a dump reads by
-- itself and a new state is one changed constraint. Names of columns with bytes end in _bytes, with seconds in _seconds. Every
-- time is the database's clock, never a planner's. Columns worth querying are read out of documents by the database
-- (GENERATED), so that the two cannot disagree.


-- Models

CREATE TABLE models (
    -- It is derived from the content: family, dash, 8 hexadecimal digits.
    id            text PRIMARY KEY,
    model         jsonb NOT NULL,
    -- What it was built from.
    source        jsonb NOT NULL,
    create_time   timestamptz NOT NULL DEFAULT now(),
    -- Of some chains only names are known: they are planned and never trained. `model` is then no model that ranks can build,
    -- and lists of models leave it out.
    opaque        boolean NOT NULL DEFAULT false,
    -- A list of models reads no text that one of them was imported from, because such a text may be megabytes long.
    listed_source jsonb NOT NULL GENERATED ALWAYS AS (
        CASE WHEN source ? 'document' THEN source || '{"document": ""}'
             WHEN source ? 'config' THEN source || '{"config": ""}'
             ELSE source END) STORED
);


-- Profiles

-- A profile is all measurements of one model under one training spec on one kind of device.
CREATE TABLE profiles (
    id          text PRIMARY KEY,
    model_id    text NOT NULL REFERENCES models,
    -- All that was asked for: the runs can be laid out from it again.
    settings    jsonb NOT NULL,
    state       text NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'complete', 'incomplete', 'cancelled')),
    -- What the campaign's predictor lacks, told to people.
    missing     text[] NOT NULL DEFAULT '{}',
    create_time timestamptz NOT NULL DEFAULT now(),
    -- When its last run ended. There is none while it is measured, which it is again after a resumption.
    end_time    timestamptz,
    profiling_mode text NOT NULL GENERATED ALWAYS AS (settings ->> 'profiling_mode') STORED,
    device_kind text NOT NULL GENERATED ALWAYS AS (settings ->> 'device_kind') STORED,
    -- What people wrote on it, by keys.
    labels      jsonb NOT NULL DEFAULT '{}'
);

CREATE INDEX profiles_by_time ON profiles (create_time, id);
CREATE INDEX profiles_by_labels ON profiles USING gin (labels);
-- It finds the profiles that reference a model that is to be deleted; plans and runs have one, too.
CREATE INDEX profiles_by_model ON profiles (model_id);

-- Profiles that another planner or another tool measured have the document that they came in.
CREATE TABLE documents (
    profile_id text PRIMARY KEY REFERENCES profiles,
    -- It is computed from the content: the same document under the same name is the same profile.
    digest     text NOT NULL,
    document   jsonb NOT NULL
);


-- Plans

-- What tells a plan apart: lists read this, and never the whole plan. What the content leaves out is null or has its default.
CREATE FUNCTION plan_summary(content jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    WITH stages AS (
        SELECT stage, position,
               (stage #>> '{config,last_layer}')::bigint - (stage #>> '{config,first_layer}')::bigint + 1 AS layers,
               coalesce((stage #>> '{config,data_degree}')::bigint, 1) AS data_degree,
               coalesce((stage #>> '{config,tensor_degree}')::bigint, 1) AS tensor_degree,
               coalesce((stage #>> '{config,sequence_parallel}')::boolean, false) AS sequence_parallel,
               coalesce(stage #>> '{config,sharding}', 'none') AS sharding
        FROM jsonb_array_elements(content -> 'stages') WITH ORDINALITY AS of_plan(stage, position)
    ), first_stages AS (
        -- Stages that are interleaved take turns on the devices of the first ones.
        SELECT * FROM stages
        WHERE position <= (SELECT count(*) FROM stages) / coalesce((content ->> 'virtual_stages')::bigint, 1)
    ), devices AS (
        SELECT position, 1 AS count, device -> 'kind' AS kind, device -> 'capacity' AS capacity
        FROM first_stages CROSS JOIN jsonb_array_elements(stage -> 'devices') AS device
        UNION ALL
        -- Stages that name no devices have as many as their degrees say.
        SELECT position, data_degree * tensor_degree, content -> 'device_kind', stage -> 'capacity'
        FROM first_stages WHERE coalesce(jsonb_array_length(stage -> 'devices'), 0) = 0
    ), groups AS (
        SELECT min(position) AS position, sum(count) AS count, kind, capacity FROM devices GROUP BY kind, capacity
    )
    SELECT jsonb_build_object(
        'training', content -> 'training',
        'device_kind', content -> 'device_kind',
        'predictor', content -> 'predictor',
        'ledger', content -> 'ledger',
        'solver', content -> 'solver',
        'asked', coalesce(content -> 'asked', '{}') - 'constraints',
        'iteration_seconds', content #> '{found,iteration,seconds}',
        'iteration_margin', content #> '{found,iteration,margin}',
        'hourly_price', content #> '{found,hourly_price}',
        'virtual_stages', coalesce(content -> 'virtual_stages', '1'),
        'peak', (SELECT max((stage ->> 'predicted_peak')::numeric) FROM stages),
        'partition', (SELECT string_agg(
                          layers || CASE data_degree WHEN 1 THEN '' ELSE 'd' || data_degree END
                                 || CASE tensor_degree WHEN 1 THEN '' ELSE 't' || tensor_degree END
                                 || CASE WHEN sequence_parallel THEN 's' ELSE '' END
                                 || CASE sharding WHEN 'none' THEN '' WHEN 'optimizer' THEN 'z1' END,
                          '-' ORDER BY position) FROM stages),
        'devices', (SELECT jsonb_agg(jsonb_build_object('count', count, 'kind', kind, 'capacity', capacity)
                                     ORDER BY position, kind, capacity) FROM groups))
$$;

-- The ids of the plans that a plan names: its alternatives, and the points of its front.
CREATE FUNCTION plan_names(content jsonb) RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT coalesce(array_agg(DISTINCT substr(named ->> 'plan', length('plans/') + 1)), '{}')
    FROM (SELECT jsonb_array_elements(content #> '{found,alternatives}') AS named
          UNION ALL
          SELECT jsonb_array_elements(content #> '{found,front}')) AS besides
    WHERE named ->> 'plan' IS NOT NULL
$$;

-- A plan for several kinds of devices rests on a profile of each: `profile_id` is one of them, and these are the ids of the
-- others.
CREATE FUNCTION plan_other_profiles(content jsonb) RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT coalesce(array_agg(DISTINCT substr(named, length('profiles/') + 1)), '{}')
    FROM jsonb_array_elements_text(coalesce(content -> 'other_profiles', '[]')) AS named
$$;

-- A plan's content never changes, and its id is derived from it.
CREATE TABLE plans (
    id             text PRIMARY KEY,
    profile_id     text NOT NULL REFERENCES profiles,
    model_id       text NOT NULL REFERENCES models,
    content        jsonb NOT NULL,
    create_time    timestamptz NOT NULL DEFAULT now(),
    summary        jsonb NOT NULL GENERATED ALWAYS AS (plan_summary(content)) STORED,
    names          text[] NOT NULL GENERATED ALWAYS AS (plan_names(content)) STORED,
    other_profiles text[] NOT NULL GENERATED ALWAYS AS (plan_other_profiles(content)) STORED
);

CREATE INDEX plans_by_time ON plans (create_time, id);
-- What rests on a profile, and on a plan, is in the way of whoever deletes it.
CREATE INDEX plans_by_profile ON plans (profile_id);
CREATE INDEX plans_by_model ON plans (model_id);
CREATE INDEX plans_naming ON plans USING gin (names);
CREATE INDEX plans_by_other_profiles ON plans USING gin (other_profiles);


-- Operations

CREATE TABLE operations (
    id                  text PRIMARY KEY,
    -- It has exactly one of five targets: a profile, trials of a plan, measurements of links, a purge, or a recommendation. It has none
    -- where it was deleted with its profile or plan.
    profile_id          text REFERENCES profiles,
    plan_id             text REFERENCES plans,
    state               text NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'succeeded', 'failed', 'cancelled')),
    error_code          integer,
    error_reason        text,
    error_message       text,
    -- A user cancelled it while workers held its runs. The state follows when they let go.
    cancel_requested    boolean NOT NULL DEFAULT false,
    -- How often runs were added because of what the first ones showed. It is a fence for those who add them.
    rounds              integer NOT NULL DEFAULT 0,
    -- With it a retried call finds the first call's operation, also after that was deleted.
    request_id          uuid,
    request_fingerprint text,
    -- A user deleted it. The row stays: its runs and measurements are nobody's to lose.
    deleted             boolean NOT NULL DEFAULT false,
    create_time         timestamptz NOT NULL DEFAULT now(),
    end_time            timestamptz,
    -- It measures links, for nobody in particular.
    measures_links      boolean NOT NULL DEFAULT false,
    -- Why the other runs of a profile were not made, where those that were made failed alike. The operation ends with it.
    stopped             text,
    -- A purge of old rows: its request, and its progress. `rounds` counts its pages.
    purge               jsonb,
    -- The result of the purge by collection, which grows with each page. It is apart because lists do not read it.
    purge_result        jsonb NOT NULL DEFAULT '{}',

    -- It searches for a plan: the progress of the search, and the plan's id at its end. The process that searches reports it
    -- every second, and search_time is its last report.
    search              jsonb,
    search_time         timestamptz,

    CONSTRAINT operations_target CHECK (
        num_nonnulls(profile_id, plan_id, purge, search) + measures_links::integer = 1
        OR num_nonnulls(profile_id, plan_id) = 0 AND deleted),
    CONSTRAINT operations_search CHECK ((search IS NULL) = (search_time IS NULL)),
    CONSTRAINT operations_error CHECK ((state = 'failed') = (error_code IS NOT NULL)),
    CONSTRAINT operations_request_id_key UNIQUE (request_id)
);

-- A profile is measured by one operation at a time; resuming it begins another.
CREATE UNIQUE INDEX operations_measuring ON operations (profile_id) WHERE profile_id IS NOT NULL AND state = 'running';
-- It finds the newest operation of a profile.
CREATE INDEX operations_by_profile ON operations (profile_id, create_time) WHERE profile_id IS NOT NULL;
CREATE INDEX operations_by_time ON operations (create_time, id);
-- It is looked at every second and must not grow with history.
CREATE INDEX operations_running ON operations (create_time) WHERE state = 'running';
CREATE INDEX operations_by_plan ON operations (plan_id) WHERE plan_id IS NOT NULL;


-- Runs: the queue that operations wait for and that workers lease from

CREATE TABLE runs (
    id                        text PRIMARY KEY,
    -- The order of the queue. It is not create_time: a second index in that order, which lists need, tempts the query planner
    -- to look for the next run in the whole history.
    position                  bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    operation_id              text NOT NULL REFERENCES operations,
    profile_id                text REFERENCES profiles,
    plan_id                   text REFERENCES plans,
    -- The model is joined at the claim: 100,000 copies of a layer list would be the largest table. A run whose work has the key
    -- `links` trains nothing, so it has neither model nor training: devices of one worker exchange tensors, and how fast they
    -- do is measured.
    model_id                  text REFERENCES models,
    training                  jsonb,
    work                      jsonb NOT NULL,
    iterations                integer NOT NULL CHECK (iterations > 0),
    device_kind               text NOT NULL,
    device_count              integer NOT NULL CHECK (device_count > 0),
    min_capacity_bytes        bigint NOT NULL CHECK (min_capacity_bytes >= 0),
    deadline_seconds          integer NOT NULL CHECK (deadline_seconds > 0),

    state                     text NOT NULL DEFAULT 'queued'
                              CHECK (state IN ('queued', 'running', 'succeeded', 'out_of_memory', 'failed', 'cancelled')),
    -- After a failure nobody may claim it earlier.
    not_before                timestamptz NOT NULL DEFAULT now(),
    -- Claims that counted as attempts; handing back does not count.
    attempts                  integer NOT NULL DEFAULT 0,
    hand_backs                integer NOT NULL DEFAULT 0,
    -- The fence. It only ever grows, by one with each claim.
    lease_token               bigint NOT NULL DEFAULT 0,
    -- Who holds it or held it last. It is no reference, because a result outlives its worker's row.
    worker_id                 text,
    -- Heartbeats renew it.
    lease_expires_at          timestamptz,
    -- The hard limit of this attempt, set at the claim: a live worker can hold a dead run.
    deadline_at               timestamptz,
    cancel_requested          boolean NOT NULL DEFAULT false,

    progress                  double precision NOT NULL DEFAULT 0,
    phase                     text NOT NULL DEFAULT '',
    -- The oldest comes first. The limits of attempts and of hand-backs bound them.
    failures                  jsonb NOT NULL DEFAULT '[]',
    -- Seconds that devices were held, added up over devices and attempts.
    device_seconds            double precision NOT NULL DEFAULT 0,
    create_time               timestamptz NOT NULL DEFAULT now(),
    start_time                timestamptz,
    end_time                  timestamptz,

    -- What it trains and how, but for the micro-batch size, as a content id: runs of equal keys and sizes measure the same,
    -- whatever model and profile they were made for. There is none where nothing may be reused.
    work_key                  text,
    micro_batch_size          integer GENERATED ALWAYS AS ((training ->> 'micro_batch_size')::integer) STORED,
    -- A run that does not fit is repeated at a smaller micro-batch size. This is the smallest size to try, and the step between
    -- sizes; there is none for a run that is not repeated.
    smallest_micro_batch_size integer CHECK (smallest_micro_batch_size > 0),
    -- The run that did not fit and that this one repeats.
    shrunk_from               text REFERENCES runs,

    -- The training command of another framework that the run names: only workers that offer it may claim the run. Where it is
    -- NULL, Loadmaster's own rank trains.
    command                   text,
    -- The only worker that may claim it, or NULL for any. It is no reference, because a run that measured links outlives its
    -- worker's row.
    only_worker_id            text,
    -- What the backward pass of each stage computes again. It is empty where the training says it for all of them.
    stage_recompute           jsonb NOT NULL DEFAULT '[]',
    -- Memory actions of its stages, in their order. The list is empty where none does anything.
    stage_actions             jsonb NOT NULL DEFAULT '[]',
    -- Memory of the host that they take, of all devices of the run together.
    host_memory_bytes         bigint NOT NULL DEFAULT 0 CHECK (host_memory_bytes >= 0),
    -- How its one stage trains the whole model in chunks; NULL where it does not.
    chunks                    jsonb,

    -- What was measured outlives what it was measured for: runs of a deleted profile or plan belong to none.
    CONSTRAINT runs_target CHECK (
        num_nonnulls(profile_id, plan_id) = CASE WHEN work ? 'links' THEN 0 ELSE 1 END
        OR num_nonnulls(profile_id, plan_id) = 0 AND end_time IS NOT NULL),
    CONSTRAINT runs_training CHECK (
        num_nonnulls(model_id, training) = CASE WHEN work ? 'links' THEN 0 ELSE 2 END
        AND (NOT work ? 'links' OR only_worker_id IS NOT NULL)),
    CONSTRAINT runs_lease CHECK (
        state <> 'running' OR (worker_id IS NOT NULL AND lease_expires_at IS NOT NULL AND deadline_at IS NOT NULL)
    ),
    CONSTRAINT runs_end CHECK ((state IN ('queued', 'running')) = (end_time IS NULL))
)
-- A heartbeat changes only columns that no index holds, so with room on the page it writes no index.
WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

-- It serves the reaper and the question what a worker holds, and is as large as the fleet, whatever the history.
-- lease_expires_at is left out on purpose: heartbeats change it.
CREATE INDEX runs_leased ON runs (worker_id) WHERE state = 'running';
-- It serves counts by state, and cancellation.
CREATE INDEX runs_by_operation ON runs (operation_id, state);
CREATE INDEX runs_by_plan ON runs (plan_id) WHERE plan_id IS NOT NULL;
CREATE INDEX runs_by_profile ON runs (profile_id) WHERE profile_id IS NOT NULL;
CREATE INDEX runs_by_model ON runs (model_id) WHERE model_id IS NOT NULL;
CREATE INDEX runs_by_time ON runs (create_time, id);
-- It answers whether anybody measured this. Only results count, so a queue of any length costs it nothing.
CREATE INDEX runs_by_work ON runs (work_key, micro_batch_size) WHERE state = 'succeeded';
-- Two sizes of one work that do not fit at the same moment must not be repeated at the same smaller one: whoever comes second
-- looks again and takes the next.
CREATE UNIQUE INDEX runs_shrunk ON runs (profile_id, work_key, micro_batch_size) WHERE shrunk_from IS NOT NULL;
-- It finds the newest trials, whatever the history of profiling.
CREATE INDEX runs_trials ON runs (create_time, id) WHERE plan_id IS NOT NULL AND state = 'succeeded';
-- The claim. A run wants one kind of device, so runs of different kinds never compete and each kind is a queue of its own. The
-- columns behind the position are tested in the index, without a visit to the row: a run that a worker has no room for, or that
-- is for another worker or command, is passed over.
CREATE INDEX runs_queue ON runs (device_kind, position, device_count, min_capacity_bytes, command, only_worker_id,
                                 host_memory_bytes)
    WHERE state = 'queued';

-- A hint for planners that wait for work; polling finds what a lost hint does not. NOTIFY takes a database-wide lock at commit,
-- so there is at most one per statement and none per heartbeat, claim or result: the triggers look at columns that only
-- re-queueing and cancelling set. They cannot look at rows as well (a column list excludes transition tables), so a statement
-- that matched no row notifies too.
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

-- What was measured once serves every profile that needs the same. These are the runs that a profile is made of: its own, and
-- those of others.
CREATE TABLE profile_runs (
    profile_id   text NOT NULL REFERENCES profiles,
    run_id       text NOT NULL REFERENCES runs,
    -- What to add to the run's indices of layers to have those of this profile's model: equal stages of other models are
    -- elsewhere in their chains.
    layer_offset integer NOT NULL DEFAULT 0,
    -- Predictions are held against it, and nothing is learnt from it.
    held_out     boolean NOT NULL DEFAULT false,
    -- It was made for another profile.
    reused       boolean NOT NULL DEFAULT false,

    PRIMARY KEY (profile_id, run_id)
);


-- Measurements

-- What one device of one stage of a run needed. It is written once and never changed.
CREATE TABLE measurements (
    run_id               text NOT NULL REFERENCES runs,
    -- It is whole, but for the losses.
    measurement          jsonb NOT NULL,
    -- They are apart because a diverging training has losses that JSON cannot write: NaN and infinity.
    losses               double precision[] NOT NULL,
    create_time          timestamptz NOT NULL DEFAULT now(),

    stage_index          integer NOT NULL GENERATED ALWAYS AS ((measurement ->> 'stage_index')::integer) STORED,
    -- Which of the stage's devices it is.
    shard                integer NOT NULL GENERATED ALWAYS AS (coalesce((measurement ->> 'shard')::integer, 0)) STORED,
    stage_count          integer NOT NULL GENERATED ALWAYS AS ((measurement ->> 'stage_count')::integer) STORED,
    solo                 boolean NOT NULL GENERATED ALWAYS AS ((measurement ->> 'solo')::boolean) STORED,
    first_layer          integer NOT NULL GENERATED ALWAYS AS ((measurement #>> '{stage,first_layer}')::integer) STORED,
    last_layer           integer NOT NULL GENERATED ALWAYS AS ((measurement #>> '{stage,last_layer}')::integer) STORED,
    data_degree          integer NOT NULL GENERATED ALWAYS AS ((measurement #>> '{stage,data_degree}')::integer) STORED,
    tensor_degree        integer NOT NULL GENERATED ALWAYS AS ((measurement #>> '{stage,tensor_degree}')::integer) STORED,
    micro_batch_size     integer NOT NULL GENERATED ALWAYS AS ((measurement ->> 'micro_batch_size')::integer) STORED,
    in_flight            integer NOT NULL GENERATED ALWAYS AS ((measurement ->> 'in_flight')::integer) STORED,
    device_kind          text NOT NULL GENERATED ALWAYS AS (measurement #>> '{environment,device_kind}') STORED,
    -- Ledgers are named and never mixed: live tensors, and what the caching allocator holds.
    peak_allocated_bytes bigint NOT NULL GENERATED ALWAYS AS ((measurement ->> 'peak_allocated')::bigint) STORED,
    peak_reserved_bytes  bigint GENERATED ALWAYS AS ((measurement ->> 'peak_reserved')::bigint) STORED,
    capacity_bytes       bigint NOT NULL GENERATED ALWAYS AS ((measurement ->> 'capacity')::bigint) STORED,
    iteration_seconds    double precision NOT NULL
                         GENERATED ALWAYS AS ((measurement ->> 'iteration_seconds')::double precision) STORED,
    -- A command may know no better ledger than the reserved or the device one. Then peak_allocated_bytes holds the peak of that
    -- ledger, and this column says which it is.
    peak_ledger          text NOT NULL GENERATED ALWAYS AS (coalesce(measurement ->> 'peak_ledger', 'allocated')) STORED,

    -- The last guard against a doubled result.
    PRIMARY KEY (run_id, stage_index, shard)
);


-- Workers

CREATE TABLE workers (
    id                text PRIMARY KEY,
    state             text NOT NULL CHECK (state IN ('alive', 'cordoned', 'lost', 'gone')),
    -- It survives the loss of the connection: a cordoned worker that returns is still cordoned.
    cordon_requested  boolean NOT NULL DEFAULT false,
    devices           jsonb NOT NULL,
    version           text NOT NULL,
    libtorch_version  text NOT NULL,
    host              text NOT NULL,
    -- It is random per process start and tells a restart from a reconnect.
    session_id        text NOT NULL,
    create_time       timestamptz NOT NULL DEFAULT now(),
    heartbeat_time    timestamptz NOT NULL DEFAULT now(),

    -- The environment that a worker measures in decides what may be reused, besides the kind and driver of its devices.
    cuda_version      text NOT NULL DEFAULT '',
    -- Threads that each of its ranks computes with; 0 where the worker did not say.
    threads           integer NOT NULL DEFAULT 0,
    -- Training commands of other frameworks that the worker's operator lists in its configuration.
    commands          text[] NOT NULL DEFAULT '{}',
    -- What drivers know of the links between its GPUs.
    links             jsonb NOT NULL DEFAULT '[]',
    -- Cores that its processes may use; 0 where it did not say. CPU slots share the cores of their host, and no more of them
    -- work at once than have cores.
    cores             integer NOT NULL DEFAULT 0,
    -- The stream that speaks for the worker, random per stream; NULL where it has none. It tells two workers of one name apart.
    connection        text,
    -- Memory of its host that it offers beside its devices.
    host_memory_bytes bigint NOT NULL DEFAULT 0 CHECK (host_memory_bytes >= 0),
    -- How fast the copies of its CPU slots may be.
    copy_pace         jsonb NOT NULL DEFAULT '{}'
)
WITH (fillfactor = 50);


-- Clusters, and what was measured of the links between the devices of workers

-- Plans and placements contain the devices and nodes that they were made for, and a cluster's name alone: no foreign key, so that a
-- cluster can be changed and deleted and history stays readable.
CREATE TABLE clusters (
    id                  text PRIMARY KEY,
    -- It is computed from the content: the same cluster under the same name is the same cluster.
    digest              text NOT NULL,
    cluster             jsonb NOT NULL,
    -- Both are for lists, which do not read the cluster.
    node_count          integer NOT NULL CHECK (node_count > 0),
    device_count        integer NOT NULL CHECK (device_count > 0),
    -- With it a retried call finds the first call's cluster.
    request_id          uuid CONSTRAINT clusters_request_id_key UNIQUE,
    request_fingerprint text,
    create_time         timestamptz NOT NULL DEFAULT now(),
    -- When its content last changed.
    update_time         timestamptz NOT NULL DEFAULT now()
);

CREATE INDEX clusters_by_time ON clusters (create_time, id);

-- It is written once and never changed. The newest one of a worker counts.
CREATE TABLE link_measurements (
    -- One result per run is the last guard against a doubled one.
    run_id      text PRIMARY KEY REFERENCES runs,
    worker_id   text NOT NULL,
    -- Devices, pairs, groups, points, and the environment.
    measurement jsonb NOT NULL,
    create_time timestamptz NOT NULL DEFAULT now()
);

CREATE INDEX link_measurements_by_worker ON link_measurements (worker_id, create_time DESC);


-- Reports

-- What users report of their own training runs of plans.
CREATE TABLE reports (
    id                  text PRIMARY KEY,
    plan_id             text NOT NULL REFERENCES plans,
    -- The whole report: figures with their ledgers, iterations, kind of device, source.
    report         jsonb NOT NULL,
    -- With it a retried call finds the first call's report.
    request_id          uuid,
    request_fingerprint text,
    create_time         timestamptz NOT NULL DEFAULT now(),
    device_kind         text NOT NULL GENERATED ALWAYS AS (report ->> 'device_kind') STORED,

    CONSTRAINT reports_request_id_key UNIQUE (request_id)
);

CREATE INDEX reports_by_plan ON reports (plan_id, create_time, id);
CREATE INDEX reports_by_time ON reports (create_time, id);


-- Placements

-- A plan on the very nodes that a scheduler gave. A placement never changes: its id is its content's. It says where one plan is,
-- and goes with it.
CREATE TABLE placements (
    id          text PRIMARY KEY,
    plan_id     text NOT NULL REFERENCES plans ON DELETE CASCADE,
    content     jsonb NOT NULL,
    nodes       text[] NOT NULL,
    create_time timestamptz NOT NULL DEFAULT now(),
    -- What lists show: stages and devices without a rank are empty here, because a content of thousands of nodes is stored
    -- apart and read whole or not at all.
    summary     jsonb NOT NULL GENERATED ALWAYS AS (content || '{"stages": [], "idle": []}'::jsonb) STORED
);

CREATE INDEX placements_by_plan ON placements (plan_id, create_time, id);
CREATE INDEX placements_by_time ON placements (create_time, id);
CREATE INDEX placements_by_cluster ON placements ((content ->> 'cluster')) WHERE content ->> 'cluster' IS NOT NULL;


-- Facts of plans

-- A predicted value over the measured one, less 1. There is none where one of them is missing or 0.
CREATE FUNCTION error_ratio(predicted double precision, measured double precision) RETURNS double precision
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN predicted > 0 AND measured > 0 THEN predicted / measured - 1 END
$$;

-- What plans are found by, in narrow rows, so that a filter reads a hundred thousand of them in the time of a call. Each plan
-- has one row, which triggers keep, so that the two cannot disagree. Words are as the plan's content writes them.
CREATE TABLE plan_facts (
    id                   text PRIMARY KEY REFERENCES plans ON DELETE CASCADE,
    create_time          timestamptz NOT NULL,
    profile_id           text NOT NULL,
    model_id             text NOT NULL,
    cluster_id           text,
    device_kind          text,
    device_count         bigint,
    objective            text,
    framework             text,
    shape                text,
    partition            text,
    solver               text,
    predictor            text,
    "precision"          text,
    optimizer            text,
    schedule             text,
    recompute            text,
    micro_batch_size     bigint,
    micro_batches        bigint,
    global_batch_size    bigint GENERATED ALWAYS AS (micro_batch_size * micro_batches) STORED,
    ledger               text,
    -- What people wrote on it, by keys. Nothing else of a plan ever changes.
    labels               jsonb NOT NULL DEFAULT '{}',
    -- The peak of the fullest device. What is more than a bigint holds is cut.
    predicted_peak_bytes bigint NOT NULL,
    -- Seconds of one iteration.
    predicted_seconds    double precision,
    hourly_price         double precision,
    -- These are of the newest trial of the whole plan that measured something.
    measured_ledger      text,
    measured_peak_bytes  bigint,
    measured_seconds     double precision,
    -- Bytes of two ledgers are not compared.
    peak_error           double precision GENERATED ALWAYS AS (
        CASE WHEN ledger = measured_ledger THEN error_ratio(predicted_peak_bytes, measured_peak_bytes) END) STORED,
    seconds_error        double precision GENERATED ALWAYS AS (error_ratio(predicted_seconds, measured_seconds)) STORED,
    -- When the plan was last the answer to a question, to the hour: a plan that is found again keeps its first time, and
    -- retention takes it for as young as a new one all the same.
    asked_time           timestamptz NOT NULL DEFAULT now(),
    -- Seconds of an iteration by the newest report that tells them, and the kind of the devices that they are of.
    reported_seconds     double precision,
    reported_kind        text,
    -- Seconds of another kind of device are no measure of those that were predicted.
    report_error         double precision GENERATED ALWAYS AS (
        CASE WHEN reported_kind = device_kind THEN error_ratio(predicted_seconds, reported_seconds) END) STORED
);

-- Orders have the order of creation behind them. What is not set comes last whichever way, which takes two indexes where it may
-- be missing.
CREATE INDEX plan_facts_by_time ON plan_facts (create_time, id);
CREATE INDEX plan_facts_by_peak ON plan_facts (predicted_peak_bytes, create_time, id);
CREATE INDEX plan_facts_by_seconds ON plan_facts (predicted_seconds, create_time, id);
CREATE INDEX plan_facts_by_seconds_down ON plan_facts (predicted_seconds DESC NULLS LAST, create_time DESC, id DESC);
-- These find what few plans have.
CREATE INDEX plan_facts_by_profile ON plan_facts (profile_id, create_time, id);
CREATE INDEX plan_facts_by_model ON plan_facts (model_id, create_time, id);
CREATE INDEX plan_facts_by_cluster ON plan_facts (cluster_id, create_time, id) WHERE cluster_id IS NOT NULL;
CREATE INDEX plan_facts_by_solver ON plan_facts (solver, create_time, id);
CREATE INDEX plan_facts_by_framework ON plan_facts (framework, create_time, id);
CREATE INDEX plan_facts_by_objective ON plan_facts (objective, create_time, id);
CREATE INDEX plan_facts_by_kind ON plan_facts (device_kind, create_time, id);
CREATE INDEX plan_facts_by_labels ON plan_facts USING gin (labels);
CREATE INDEX plan_facts_measured ON plan_facts (measured_seconds) WHERE measured_seconds IS NOT NULL;
CREATE INDEX plan_facts_reported ON plan_facts (reported_seconds) WHERE reported_seconds IS NOT NULL;

-- Writes the facts that a plan's content tells.
CREATE FUNCTION note_facts(plan plans) RETURNS void LANGUAGE sql AS $$
    INSERT INTO plan_facts AS facts (
        id, create_time, profile_id, model_id, cluster_id, device_kind, device_count, objective, framework, shape,
        partition, solver, predictor, "precision", optimizer, schedule, recompute, micro_batch_size, micro_batches,
        ledger, predicted_peak_bytes, predicted_seconds, hourly_price)
    SELECT plan.id, plan.create_time, plan.profile_id, plan.model_id, substr(of #>> '{asked,cluster}', length('clusters/') + 1),
           of ->> 'device_kind',
           (SELECT sum((devices ->> 'count')::bigint) FROM jsonb_array_elements(of -> 'devices') AS devices),
           of #>> '{asked,objective}', of #>> '{asked,framework}', of #>> '{asked,shape}', of ->> 'partition',
           of ->> 'solver', of ->> 'predictor', of #>> '{training,precision}', of #>> '{training,optimizer,kind}',
           of #>> '{training,schedule}', of #>> '{training,recompute}',
           (of #>> '{training,micro_batch_size}')::bigint, (of #>> '{training,micro_batches}')::bigint,
           of ->> 'ledger', least(coalesce((of ->> 'peak')::numeric, 0), 9223372036854775807)::bigint,
           (of ->> 'iteration_seconds')::double precision, (of ->> 'hourly_price')::double precision
    FROM (SELECT plan.summary AS of) AS of_plan
    ON CONFLICT (id) DO UPDATE
    SET (create_time, profile_id, model_id, cluster_id, device_kind, device_count, objective, framework, shape, partition,
         solver, predictor, "precision", optimizer, schedule, recompute, micro_batch_size, micro_batches, ledger,
         predicted_peak_bytes, predicted_seconds, hourly_price)
      = (excluded.create_time, excluded.profile_id, excluded.model_id, excluded.cluster_id, excluded.device_kind,
         excluded.device_count, excluded.objective, excluded.framework, excluded.shape, excluded.partition,
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

-- What the newest trial of a whole plan measured that measured something: the highest peak of its devices, none where they are
-- of several ledgers, and the seconds of its slowest rank.
CREATE FUNCTION measured_of_plan(plan text, OUT ledger text, OUT peak bigint, OUT seconds double precision)
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN min(m.peak_ledger) = max(m.peak_ledger) THEN min(m.peak_ledger) END,
           CASE WHEN min(m.peak_ledger) = max(m.peak_ledger) THEN max(m.peak_allocated_bytes) END,
           CASE WHEN max(m.iteration_seconds) > 0 THEN max(m.iteration_seconds) END
    FROM (SELECT id FROM runs WHERE plan_id = plan AND state = 'succeeded' AND NOT work ? 'solo'
          ORDER BY create_time DESC, id DESC LIMIT 1) AS newest
    JOIN measurements AS m ON m.run_id = newest.id
$$;

-- The row is locked first, and what was measured is read by a statement of its own: of two trials that end at the same moment
-- the second sees the first.
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

-- Plans are found by what users report of their trainings, as they are by what trials measured.
CREATE FUNCTION reported_of_plan(plan text, OUT seconds double precision, OUT kind text) LANGUAGE sql STABLE AS $$
    SELECT (report ->> 'iteration_seconds')::double precision, device_kind FROM reports
    WHERE plan_id = plan AND report ->> 'iteration_seconds' IS NOT NULL
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

CREATE TRIGGER reports_noted AFTER INSERT OR DELETE ON reports FOR EACH ROW EXECUTE FUNCTION note_report();
-- Whoever copies reports with triggers off finds plans by them, too.
ALTER TABLE reports ENABLE ALWAYS TRIGGER reports_noted;


-- Retention

-- When periodic work last began, in any planner. Planners share the schedule by which they purge old rows.
CREATE TABLE schedules (
    name       text PRIMARY KEY,
    begin_time timestamptz NOT NULL
);
