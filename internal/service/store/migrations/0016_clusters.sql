-- Kubernetes clusters whose ServiceAccounts are trusted: their public keys and these accounts, as JSON.
CREATE TABLE clusters (
    id           TEXT COLLATE BINARY PRIMARY KEY,
    account_id   TEXT COLLATE BINARY NOT NULL REFERENCES accounts (id),
    name         TEXT COLLATE BINARY NOT NULL,
    issuer       TEXT NOT NULL,
    jwks         TEXT NOT NULL,
    subjects     TEXT NOT NULL,
    cluster_uid  TEXT COLLATE BINARY NOT NULL,
    description  TEXT NOT NULL,
    metadata     TEXT NOT NULL,
    created_at   INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL,
    last_used_at INTEGER NOT NULL DEFAULT 0,
    UNIQUE (account_id, name)
);

-- Which cluster has a key, and which a subject. Rows follow those of clusters.
CREATE TABLE cluster_keys (
    account_id TEXT COLLATE BINARY NOT NULL,
    key_id     TEXT COLLATE BINARY NOT NULL,
    cluster_id TEXT COLLATE BINARY NOT NULL REFERENCES clusters (id),
    PRIMARY KEY (account_id, key_id)
);
CREATE INDEX cluster_keys_by_cluster ON cluster_keys (cluster_id);

CREATE TABLE cluster_subjects (
    id         TEXT COLLATE BINARY PRIMARY KEY,
    cluster_id TEXT COLLATE BINARY NOT NULL REFERENCES clusters (id)
);
CREATE INDEX cluster_subjects_by_cluster ON cluster_subjects (cluster_id);
