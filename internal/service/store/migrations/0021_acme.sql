-- What the service has from its ACME directory, and its answers to the directory's challenges.
CREATE TABLE acme (
    kind       TEXT COLLATE BINARY NOT NULL, -- store.ACMEKind
    name       TEXT COLLATE BINARY NOT NULL,
    sealed     BLOB    NOT NULL, -- sealed for kind and name
    changed_at INTEGER NOT NULL,
    PRIMARY KEY (kind, name)
);
