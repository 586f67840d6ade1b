-- Times are unix microseconds, 0 for none; booleans are 0 and 1; texts are '' for none. Lists are JSON.

CREATE TABLE store (
    id       BIGINT PRIMARY KEY CHECK (id = 1),
    store_id TEXT COLLATE "C" NOT NULL,
    epoch    BIGINT NOT NULL
);

CREATE TABLE accounts (
    id            TEXT COLLATE "C" PRIMARY KEY,
    name          TEXT COLLATE "C" NOT NULL UNIQUE,
    seq           BIGINT NOT NULL DEFAULT 0, -- number of the account's last change
    compacted_seq BIGINT NOT NULL DEFAULT 0, -- events up to here are gone
    created_at    BIGINT NOT NULL
);

CREATE TABLE api_keys (
    id           TEXT COLLATE "C" PRIMARY KEY,
    account_id   TEXT COLLATE "C" NOT NULL REFERENCES accounts (id),
    description  TEXT    NOT NULL,
    scopes       TEXT    NOT NULL,
    secret_hash  BYTEA NOT NULL UNIQUE,
    created_at   BIGINT NOT NULL,
    expires_at   BIGINT NOT NULL DEFAULT 0,
    last_used_at BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX api_keys_of_account ON api_keys (account_id, id);

CREATE TABLE authtokens (
    id           TEXT COLLATE "C" PRIMARY KEY,
    account_id   TEXT COLLATE "C" NOT NULL REFERENCES accounts (id),
    description  TEXT    NOT NULL,
    acl          TEXT    NOT NULL,
    secret_hash  BYTEA NOT NULL UNIQUE,
    created_at   BIGINT NOT NULL,
    last_used_at BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX authtokens_of_account ON authtokens (account_id, id);

CREATE TABLE tunnel_sessions (
    id            TEXT COLLATE "C" PRIMARY KEY,
    account_id    TEXT COLLATE "C" NOT NULL REFERENCES accounts (id),
    credential_id TEXT COLLATE "C" NOT NULL,
    agent_version TEXT    NOT NULL,
    ip            TEXT    NOT NULL,
    metadata      TEXT    NOT NULL,
    os            TEXT    NOT NULL,
    region        TEXT    NOT NULL,
    transport     TEXT    NOT NULL,
    instance_id   TEXT COLLATE "C" NOT NULL,
    server_id     TEXT COLLATE "C" NOT NULL,
    started_at    BIGINT NOT NULL
);
CREATE INDEX tunnel_sessions_of_account ON tunnel_sessions (account_id, id);

-- One row per slot. A session only holds a row; the row and its id outlive it.
CREATE TABLE endpoints (
    id                TEXT COLLATE "C" PRIMARY KEY,
    account_id        TEXT COLLATE "C" NOT NULL REFERENCES accounts (id),
    binding           TEXT COLLATE "C" NOT NULL,
    host              TEXT COLLATE "C" NOT NULL,
    port              BIGINT NOT NULL,
    slot              TEXT COLLATE "C" NOT NULL,
    scheme            TEXT    NOT NULL,
    url               TEXT COLLATE "C" NOT NULL,
    type              TEXT    NOT NULL,
    name              TEXT COLLATE "C" NOT NULL,
    description       TEXT    NOT NULL,
    metadata          TEXT    NOT NULL,
    pooling_enabled   BIGINT NOT NULL,
    upstream_url      TEXT    NOT NULL,
    upstream_protocol TEXT    NOT NULL,
    host_mode         TEXT    NOT NULL,
    region            TEXT    NOT NULL,
    online            BIGINT NOT NULL,
    session_id        TEXT COLLATE "C" NOT NULL,
    credential_id     TEXT COLLATE "C" NOT NULL,
    resume_hash       BYTEA NOT NULL,
    online_since      BIGINT NOT NULL,
    offline_since     BIGINT NOT NULL,
    grace_from        BIGINT NOT NULL,
    projection_id     TEXT COLLATE "C" NOT NULL,
    created_at        BIGINT NOT NULL,
    updated_at        BIGINT NOT NULL,
    seq               BIGINT NOT NULL,
    UNIQUE (account_id, binding, host, port, slot)
);
CREATE INDEX endpoints_of_account ON endpoints (account_id, id);
CREATE INDEX endpoints_of_url ON endpoints (account_id, url);
CREATE INDEX endpoints_of_session ON endpoints (session_id);
CREATE INDEX endpoints_in_grace ON endpoints (online, grace_from);

-- The id of a slot without a row, kept for the next bind.
CREATE TABLE slot_reservations (
    account_id  TEXT COLLATE "C" NOT NULL REFERENCES accounts (id),
    binding     TEXT COLLATE "C" NOT NULL,
    host        TEXT COLLATE "C" NOT NULL,
    port        BIGINT NOT NULL,
    slot        TEXT COLLATE "C" NOT NULL,
    endpoint_id TEXT COLLATE "C" NOT NULL,
    expires_at  BIGINT NOT NULL,
    PRIMARY KEY (account_id, binding, host, port, slot)
);
CREATE INDEX slot_reservations_by_expiry ON slot_reservations (expires_at);

-- The projection id of a hostname; expires_at is 0 while the hostname has endpoints.
CREATE TABLE hostnames (
    account_id    TEXT COLLATE "C" NOT NULL REFERENCES accounts (id),
    binding       TEXT COLLATE "C" NOT NULL,
    host          TEXT COLLATE "C" NOT NULL,
    projection_id TEXT COLLATE "C" NOT NULL,
    expires_at    BIGINT NOT NULL,
    PRIMARY KEY (account_id, binding, host)
);
CREATE INDEX hostnames_by_expiry ON hostnames (expires_at);

-- The log that watches read. Written in the transaction of the change, numbered from accounts.seq.
CREATE TABLE events (
    account_id TEXT COLLATE "C" NOT NULL REFERENCES accounts (id),
    seq        BIGINT NOT NULL,
    at         BIGINT NOT NULL,
    type       TEXT    NOT NULL,
    binding    TEXT COLLATE "C" NOT NULL,
    url        TEXT COLLATE "C" NOT NULL,
    snapshot   TEXT    NOT NULL,
    PRIMARY KEY (account_id, seq)
);
CREATE INDEX events_by_time ON events (at);

CREATE TABLE operators (
    id               TEXT COLLATE "C" PRIMARY KEY,
    account_id       TEXT COLLATE "C" NOT NULL REFERENCES accounts (id),
    cluster_uid      TEXT COLLATE "C" NOT NULL,
    namespace        TEXT COLLATE "C" NOT NULL,
    name             TEXT COLLATE "C" NOT NULL,
    version          TEXT    NOT NULL,
    cluster_name     TEXT    NOT NULL,
    description      TEXT    NOT NULL,
    metadata         TEXT    NOT NULL,
    enabled_features TEXT    NOT NULL,
    region           TEXT    NOT NULL,
    binding          TEXT COLLATE "C" NOT NULL, -- JSON, null for none
    credential_id    TEXT COLLATE "C" NOT NULL,
    created_at       BIGINT NOT NULL,
    updated_at       BIGINT NOT NULL,
    last_seen_at     BIGINT NOT NULL
);
CREATE INDEX operators_of_account ON operators (account_id, id);
CREATE UNIQUE INDEX operators_by_place ON operators (account_id, cluster_uid, namespace, name) WHERE cluster_uid <> '';
