-- Changes of accounts by commands that wait until the servers have applied them.
CREATE TABLE access_changes (
    id         TEXT COLLATE BINARY PRIMARY KEY,
    account_id TEXT COLLATE BINARY NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    at         INTEGER NOT NULL
);

-- The servers that have: a replica's id, or '' for a server that is alone.
CREATE TABLE access_changes_applied (
    change_id TEXT COLLATE BINARY NOT NULL REFERENCES access_changes (id) ON DELETE CASCADE,
    server_id TEXT COLLATE BINARY NOT NULL,
    PRIMARY KEY (change_id, server_id)
);
