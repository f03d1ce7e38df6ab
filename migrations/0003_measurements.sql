-- What runs yielded. Written once, never changed.

CREATE TABLE measurements (
    run_id      text NOT NULL REFERENCES runs,
    -- Whole, but for the losses.
    measurement jsonb NOT NULL,
    -- Apart because a diverging training has losses that JSON cannot write: NaN and infinity.
    losses      double precision[] NOT NULL,
    create_time timestamptz NOT NULL DEFAULT now(),

    -- Columns worth querying are read out of the document, so that the two cannot disagree.
    stage_index          integer NOT NULL GENERATED ALWAYS AS ((measurement ->> 'stage_index')::integer) STORED,
    -- Which of the stage's devices.
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

    -- The last guard against a doubled result.
    PRIMARY KEY (run_id, stage_index, shard)
);
