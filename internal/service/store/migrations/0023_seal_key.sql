-- The fingerprint of the key by which an endpoint's agent seals connections.
ALTER TABLE endpoints ADD COLUMN seal_key TEXT NOT NULL DEFAULT '';
