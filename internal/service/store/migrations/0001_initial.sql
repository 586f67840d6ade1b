-- Times are unix microseconds, 0 for none; booleans are 0 and 1; texts are '' for none. Lists are JSON.

CREATE TABLE store (
    id       INTEGER PRIMARY KEY CHECK (id = 1),
    store_id TEXT COLLATE BINARY NOT NULL,
    epoch    INTEGER NOT NULL
);

CREATE TABLE accounts (
    id            TEXT COLLATE BINARY PRIMARY KEY,
    name          TEXT COLLATE BINARY NOT NULL UNIQUE,
    seq           INTEGER NOT NULL DEFAULT 0, -- number of the account's last change
    compacted_seq INTEGER NOT NULL DEFAULT 0, -- events up to here are gone
    created_at    INTEGER NOT NULL
);

CREATE TABLE api_keys (
    id           TEXT COLLATE BINARY PRIMARY KEY,
    account_id   TEXT COLLATE BINARY NOT NULL REFERENCES accounts (id),
    description  TEXT    NOT NULL,
    scopes       TEXT    NOT NULL,
    secret_hash  BLOB    NOT NULL UNIQUE,
    created_at   INTEGER NOT NULL,
    expires_at   INTEGER NOT NULL DEFAULT 0,
    last_used_at INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX api_keys_of_account ON api_keys (account_id, id);

CREATE TABLE authtokens (
    id           TEXT COLLATE BINARY PRIMARY KEY,
    account_id   TEXT COLLATE BINARY NOT NULL REFERENCES accounts (id),
    description  TEXT    NOT NULL,
    acl          TEXT    NOT NULL,
    secret_hash  BLOB    NOT NULL UNIQUE,
    created_at   INTEGER NOT NULL,
    last_used_at INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX authtokens_of_account ON authtokens (account_id, id);

CREATE TABLE tunnel_sessions (
    id            TEXT COLLATE BINARY PRIMARY KEY,
    account_id    TEXT COLLATE BINARY NOT NULL REFERENCES accounts (id),
    credential_id TEXT COLLATE BINARY NOT NULL,
    agent_version TEXT    NOT NULL,
    ip            TEXT    NOT NULL,
    metadata      TEXT    NOT NULL,
    os            TEXT    NOT NULL,
    region        TEXT    NOT NULL,
    transport     TEXT    NOT NULL,
    instance_id   TEXT COLLATE BINARY NOT NULL,
    server_id     TEXT COLLATE BINARY NOT NULL,
    started_at    INTEGER NOT NULL
);
CREATE INDEX tunnel_sessions_of_account ON tunnel_sessions (account_id, id);

-- One row per slot. A session only holds a row; the row and its id outlive it.
CREATE TABLE endpoints (
    id                TEXT COLLATE BINARY PRIMARY KEY,
    account_id        TEXT COLLATE BINARY NOT NULL REFERENCES accounts (id),
    binding           TEXT COLLATE BINARY NOT NULL,
    host              TEXT COLLATE BINARY NOT NULL,
    port              INTEGER NOT NULL,
    slot              TEXT COLLATE BINARY NOT NULL,
    scheme            TEXT    NOT NULL,
    url               TEXT COLLATE BINARY NOT NULL,
    type              TEXT    NOT NULL,
    name              TEXT COLLATE BINARY NOT NULL,
    description       TEXT    NOT NULL,
    metadata          TEXT    NOT NULL,
    pooling_enabled   INTEGER NOT NULL,
    upstream_url      TEXT    NOT NULL,
    upstream_protocol TEXT    NOT NULL,
    host_mode         TEXT    NOT NULL,
    region            TEXT    NOT NULL,
    online            INTEGER NOT NULL,
    session_id        TEXT COLLATE BINARY NOT NULL,
    credential_id     TEXT COLLATE BINARY NOT NULL,
    resume_hash       BLOB    NOT NULL,
    online_since      INTEGER NOT NULL,
    offline_since     INTEGER NOT NULL,
    grace_from        INTEGER NOT NULL,
    projection_id     TEXT COLLATE BINARY NOT NULL,
    created_at        INTEGER NOT NULL,
    updated_at        INTEGER NOT NULL,
    seq               INTEGER NOT NULL,
    UNIQUE (account_id, binding, host, port, slot)
);
CREATE INDEX endpoints_of_account ON endpoints (account_id, id);
CREATE INDEX endpoints_of_url ON endpoints (account_id, url);
CREATE INDEX endpoints_of_session ON endpoints (session_id);
CREATE INDEX endpoints_in_grace ON endpoints (online, grace_from);

-- The id of a slot without a row, kept for the next bind.
CREATE TABLE slot_reservations (
    account_id  TEXT COLLATE BINARY NOT NULL REFERENCES accounts (id),
    binding     TEXT COLLATE BINARY NOT NULL,
    host        TEXT COLLATE BINARY NOT NULL,
    port        INTEGER NOT NULL,
    slot        TEXT COLLATE BINARY NOT NULL,
    endpoint_id TEXT COLLATE BINARY NOT NULL,
    expires_at  INTEGER NOT NULL,
    PRIMARY KEY (account_id, binding, host, port, slot)
);
CREATE INDEX slot_reservations_by_expiry ON slot_reservations (expires_at);

-- The projection id of a hostname; expires_at is 0 while the hostname has endpoints.
CREATE TABLE hostnames (
    account_id    TEXT COLLATE BINARY NOT NULL REFERENCES accounts (id),
    binding       TEXT COLLATE BINARY NOT NULL,
    host          TEXT COLLATE BINARY NOT NULL,
    projection_id TEXT COLLATE BINARY NOT NULL,
    expires_at    INTEGER NOT NULL,
    PRIMARY KEY (account_id, binding, host)
);
CREATE INDEX hostnames_by_expiry ON hostnames (expires_at);

-- The log that watches read. Written in the transaction of the change, numbered from accounts.seq.
CREATE TABLE events (
    account_id TEXT COLLATE BINARY NOT NULL REFERENCES accounts (id),
    seq        INTEGER NOT NULL,
    at         INTEGER NOT NULL,
    type       TEXT    NOT NULL,
    binding    TEXT COLLATE BINARY NOT NULL,
    url        TEXT COLLATE BINARY NOT NULL,
    snapshot   TEXT    NOT NULL,
    PRIMARY KEY (account_id, seq)
);
CREATE INDEX events_by_time ON events (at);

CREATE TABLE operators (
    id               TEXT COLLATE BINARY PRIMARY KEY,
    account_id       TEXT COLLATE BINARY NOT NULL REFERENCES accounts (id),
    cluster_uid      TEXT COLLATE BINARY NOT NULL,
    namespace        TEXT COLLATE BINARY NOT NULL,
    name             TEXT COLLATE BINARY NOT NULL,
    version          TEXT    NOT NULL,
    cluster_name     TEXT    NOT NULL,
    description      TEXT    NOT NULL,
    metadata         TEXT    NOT NULL,
    enabled_features TEXT    NOT NULL,
    region           TEXT    NOT NULL,
    binding          TEXT COLLATE BINARY NOT NULL, -- JSON, null for none
    credential_id    TEXT COLLATE BINARY NOT NULL,
    created_at       INTEGER NOT NULL,
    updated_at       INTEGER NOT NULL,
    last_seen_at     INTEGER NOT NULL
);
CREATE INDEX operators_of_account ON operators (account_id, id);
CREATE UNIQUE INDEX operators_by_place ON operators (account_id, cluster_uid, namespace, name) WHERE cluster_uid <> '';
