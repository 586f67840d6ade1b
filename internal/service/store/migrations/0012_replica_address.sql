-- HMAC-SHA256, in hexadecimal, of a replica's id and address, under a key that is not in the database.
ALTER TABLE replicas ADD COLUMN address_mac TEXT NOT NULL DEFAULT '';
