-- For the other replicas: where this one listens, by which URL clients reach all of them, and
-- whether it is about to stop.
ALTER TABLE replicas ADD COLUMN relay_address TEXT NOT NULL DEFAULT '';
ALTER TABLE replicas ADD COLUMN base_url TEXT NOT NULL DEFAULT '';
ALTER TABLE replicas ADD COLUMN draining INTEGER NOT NULL DEFAULT 0;

-- SHA-256 of the secret that further connections of a session present.
ALTER TABLE tunnel_sessions ADD COLUMN join_hash BLOB NOT NULL DEFAULT x'';

-- The replicas that a session has connections with. A session without one is over. The sessions of
-- a server without replicas have none.
CREATE TABLE legs (
    session_id TEXT COLLATE BINARY NOT NULL REFERENCES tunnel_sessions (id) ON DELETE CASCADE,
    replica_id TEXT COLLATE BINARY NOT NULL REFERENCES replicas (id) ON DELETE CASCADE,
    PRIMARY KEY (session_id, replica_id)
);
CREATE INDEX legs_of_replica ON legs (replica_id);

-- Of the secret with which a later session of the agent replaces the tunnel.
ALTER TABLE tunnels ADD COLUMN resume_hash BLOB NOT NULL DEFAULT x'';
CREATE INDEX tunnels_by_resume_hash ON tunnels (account_id, resume_hash);
