-- Clusters, and what was measured of the links between the devices of workers.

-- A cluster's content never changes under a name, so whoever planned on it can look at it again.
CREATE TABLE clusters (
    id                  text PRIMARY KEY,
    -- Of the content: the same cluster under the same name is the same cluster.
    digest              text NOT NULL,
    cluster             jsonb NOT NULL,
    -- For lists, which do not read the cluster.
    node_count          integer NOT NULL CHECK (node_count > 0),
    device_count        integer NOT NULL CHECK (device_count > 0),
    -- Makes a retried call find the first call's cluster.
    request_id          uuid CONSTRAINT clusters_request_id_key UNIQUE,
    request_fingerprint text,
    create_time         timestamptz NOT NULL DEFAULT now()
);

CREATE INDEX clusters_by_time ON clusters (create_time, id);

-- What drivers know of the links between a worker's GPUs.
ALTER TABLE workers ADD COLUMN links jsonb NOT NULL DEFAULT '[]';
