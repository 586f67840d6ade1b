-- The child of a failover that the last event of its switches names, '' when none was up. NULL: there
-- was none, or one server writes the events.
ALTER TABLE backends ADD COLUMN active_child TEXT;

-- Which child of a failover serves the new connections of a replica, '' when none is up. A replica
-- has no row of those that it has not used lately.
CREATE TABLE active_children (
    backend_id TEXT COLLATE BINARY NOT NULL REFERENCES backends (id) ON DELETE CASCADE,
    replica_id TEXT COLLATE BINARY NOT NULL REFERENCES replicas (id) ON DELETE CASCADE,
    child_id   TEXT COLLATE BINARY NOT NULL,
    PRIMARY KEY (backend_id, replica_id)
);
CREATE INDEX active_children_of_replica ON active_children (replica_id);
