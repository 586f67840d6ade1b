-- The service's own certificate authority, at most one. A store in SQLite has none: its authority lies in files.
CREATE TABLE authority (
    id          INTEGER PRIMARY KEY CHECK (id = 1),
    certificate BLOB NOT NULL, -- DER
    sealed_key  BLOB NOT NULL  -- PKCS #8, sealed for the certificate
);
-- Older programs would present the authority of their files.
UPDATE store SET compatible_from = 8;
