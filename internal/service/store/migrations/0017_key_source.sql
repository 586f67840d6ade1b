-- Where new keys of a cluster come from: account.KeySource.
ALTER TABLE clusters ADD COLUMN key_source TEXT NOT NULL DEFAULT 'cluster';
