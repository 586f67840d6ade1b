-- The Kubernetes object that an endpoint is for, '' for none: the uid of its cluster, <kind>/<namespace>/<name>, and its
-- own uid.
ALTER TABLE endpoints ADD COLUMN owner_cluster TEXT COLLATE BINARY NOT NULL DEFAULT '';
ALTER TABLE endpoints ADD COLUMN owner_object TEXT COLLATE BINARY NOT NULL DEFAULT '';
ALTER TABLE endpoints ADD COLUMN owner_uid TEXT NOT NULL DEFAULT '';
CREATE INDEX endpoints_of_owner ON endpoints (account_id, owner_cluster, id) WHERE owner_cluster <> '';

-- Endpoints with an owner have a grace of their own.
DROP INDEX endpoints_in_grace;
CREATE INDEX endpoints_in_grace ON endpoints (online, owner_cluster, grace_from);
