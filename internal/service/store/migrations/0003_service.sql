-- '' and an empty blob stand for none. Policies are sealed with the secret key.
ALTER TABLE endpoints ADD COLUMN traffic_policy BLOB NOT NULL DEFAULT x'';
ALTER TABLE endpoints ADD COLUMN policy_digest TEXT NOT NULL DEFAULT '';
ALTER TABLE endpoints ADD COLUMN backend_id TEXT COLLATE BINARY NOT NULL DEFAULT '';

-- A forwarder may name an endpoint that is gone.
CREATE INDEX slot_reservations_by_endpoint ON slot_reservations (account_id, endpoint_id);

CREATE TABLE backends (
    id          TEXT COLLATE BINARY PRIMARY KEY,
    account_id  TEXT COLLATE BINARY NOT NULL REFERENCES accounts (id),
    kind        TEXT COLLATE BINARY NOT NULL,
    description TEXT    NOT NULL,
    metadata    TEXT    NOT NULL,
    config      TEXT    NOT NULL, -- JSON of what belongs to the kind, but the children
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL
);
CREATE INDEX backends_of_account ON backends (account_id, kind, id);

CREATE TABLE backend_children (
    parent_id TEXT COLLATE BINARY NOT NULL REFERENCES backends (id) ON DELETE CASCADE,
    position  INTEGER NOT NULL,
    child_id  TEXT COLLATE BINARY NOT NULL REFERENCES backends (id),
    weight    INTEGER NOT NULL,
    PRIMARY KEY (parent_id, position)
);
CREATE INDEX backend_children_by_child ON backend_children (child_id);

-- What an endpoint refers to, by backend_id or in its policy.
CREATE TABLE endpoint_backends (
    endpoint_id TEXT COLLATE BINARY NOT NULL REFERENCES endpoints (id) ON DELETE CASCADE,
    backend_id  TEXT COLLATE BINARY NOT NULL REFERENCES backends (id),
    PRIMARY KEY (endpoint_id, backend_id)
);
CREATE INDEX endpoint_backends_by_backend ON endpoint_backends (backend_id);

-- Whose hosts under a domain are: 'example.com' or '*.example.com'.
CREATE TABLE domains (
    pattern    TEXT COLLATE BINARY PRIMARY KEY,
    account_id TEXT COLLATE BINARY NOT NULL REFERENCES accounts (id),
    created_at INTEGER NOT NULL
);
CREATE INDEX domains_of_account ON domains (account_id, pattern);

-- The edge finds a public endpoint by its host and port alone; a domain belongs to one account.
CREATE INDEX endpoints_by_host ON endpoints (binding, host, port, account_id, id);

CREATE TABLE tunnels (
    id                TEXT COLLATE BINARY PRIMARY KEY,
    account_id        TEXT COLLATE BINARY NOT NULL REFERENCES accounts (id),
    session_id        TEXT COLLATE BINARY NOT NULL,
    labels            TEXT    NOT NULL, -- JSON
    metadata          TEXT    NOT NULL,
    forwards_to       TEXT    NOT NULL,
    upstream_protocol TEXT    NOT NULL,
    region            TEXT    NOT NULL,
    started_at        INTEGER NOT NULL
);
CREATE INDEX tunnels_of_account ON tunnels (account_id, id);
CREATE INDEX tunnels_of_session ON tunnels (session_id);

-- What happened, for people and audits; not the log that watches of endpoints read.
CREATE TABLE audit_events (
    id           TEXT COLLATE BINARY PRIMARY KEY,
    account_id   TEXT COLLATE BINARY NOT NULL REFERENCES accounts (id),
    seq          INTEGER NOT NULL, -- of the account's audit events
    at           INTEGER NOT NULL,
    type         TEXT    NOT NULL,
    principal_id TEXT COLLATE BINARY NOT NULL,
    object_id    TEXT COLLATE BINARY NOT NULL,
    details      TEXT    NOT NULL, -- JSON
    UNIQUE (account_id, seq)
);
CREATE INDEX audit_events_by_time ON audit_events (at);
ALTER TABLE accounts ADD COLUMN audit_seq INTEGER NOT NULL DEFAULT 0;
ALTER TABLE accounts ADD COLUMN audit_compacted_seq INTEGER NOT NULL DEFAULT 0;

-- How many endpoints the account has: its limit must not cost more the more there are.
ALTER TABLE accounts ADD COLUMN endpoints INTEGER NOT NULL DEFAULT 0;
UPDATE accounts SET endpoints = (SELECT COUNT(*) FROM endpoints WHERE endpoints.account_id = accounts.id);

-- Rows of a URL and of a session are read in the order of their ids. An index in that order keeps SQLite from reading
-- the whole account.
DROP INDEX endpoints_of_url;
DROP INDEX endpoints_of_session;
CREATE INDEX endpoints_of_url ON endpoints (account_id, url, id);
CREATE INDEX endpoints_of_session ON endpoints (session_id, account_id, id);
