-- API keys of the scope exporter: their rules, and the UID of the cluster that they belong to, '' until
-- one presents the key.
ALTER TABLE api_keys ADD COLUMN acl TEXT NOT NULL DEFAULT '[]';
ALTER TABLE api_keys ADD COLUMN cluster_uid TEXT NOT NULL DEFAULT '';
