-- The authorities beside the one in service: next, and retiring, whose key is gone. A store in SQLite has none: they
-- lie in files. Certificates are DER, keys PKCS #8, sealed for the certificate.
CREATE TABLE authorities_beside (
    role        TEXT COLLATE BINARY PRIMARY KEY CHECK (role IN ('next', 'retiring')),
    certificate BLOB NOT NULL,
    sealed_key  BLOB NOT NULL
);
-- How many sessions of each server have clients that were not told of the next authority.
CREATE TABLE authority_reports (
    server_id TEXT COLLATE BINARY PRIMARY KEY, -- a replica's id, '' for a server that is alone
    next      TEXT    NOT NULL, -- the fingerprint of the authority
    untold    INTEGER NOT NULL,
    sessions  TEXT    NOT NULL -- the ids of some of them, with a space between
);
