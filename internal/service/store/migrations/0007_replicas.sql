-- Servers that are active on the store together, which PostgreSQL alone has. A process that is no
-- longer among them cannot write.
CREATE TABLE replicas (
    id         TEXT COLLATE BINARY PRIMARY KEY,
    address    TEXT    NOT NULL,
    version    TEXT    NOT NULL,
    started_at INTEGER NOT NULL
);

-- Apart from replicas, whose rows writes lock.
CREATE TABLE replica_beats (
    replica_id TEXT COLLATE BINARY PRIMARY KEY REFERENCES replicas (id) ON DELETE CASCADE,
    beats      INTEGER NOT NULL
);

-- 'replicas', or '' for one server.
ALTER TABLE store ADD COLUMN mode TEXT NOT NULL DEFAULT '';

-- The oldest schema version whose programs can use this one.
ALTER TABLE store ADD COLUMN compatible_from INTEGER NOT NULL DEFAULT 7;
