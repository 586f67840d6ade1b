-- What a cluster exports under the name of a Service, as JSON; '' for all other endpoints.
ALTER TABLE endpoints ADD COLUMN service_export TEXT NOT NULL DEFAULT '';

-- Which cluster of an account has which id of the binding clusterset. seen_at is when an API key of the
-- cluster was used last, exact to an hour.
CREATE TABLE cluster_ids (
    account_id  TEXT COLLATE BINARY NOT NULL REFERENCES accounts (id),
    cluster_id  TEXT COLLATE BINARY NOT NULL,
    cluster_uid TEXT COLLATE BINARY NOT NULL,
    seen_at     INTEGER NOT NULL,
    PRIMARY KEY (account_id, cluster_id),
    UNIQUE (account_id, cluster_uid)
);
