-- People who logged in at endpoints. identity_key is a keyed digest of provider and subject.
CREATE TABLE app_users (
    id               TEXT COLLATE BINARY PRIMARY KEY,
    account_id       TEXT COLLATE BINARY NOT NULL REFERENCES accounts (id),
    identity_key     TEXT COLLATE BINARY NOT NULL,
    provider_name    TEXT COLLATE BINARY NOT NULL,
    provider_url     TEXT COLLATE BINARY NOT NULL,
    provider_user_id TEXT COLLATE BINARY NOT NULL,
    username         TEXT COLLATE BINARY NOT NULL,
    email            TEXT COLLATE BINARY NOT NULL,
    name             TEXT COLLATE BINARY NOT NULL,
    search           TEXT COLLATE BINARY NOT NULL, -- what is searched, in lower case
    provider_search  TEXT COLLATE BINARY NOT NULL,
    created_at       INTEGER NOT NULL,
    last_active      INTEGER NOT NULL,
    last_login       INTEGER NOT NULL,
    UNIQUE (account_id, identity_key)
);
CREATE INDEX app_users_of_account ON app_users (account_id, id);
CREATE INDEX app_users_by_activity ON app_users (last_active);

-- token_hash is the SHA-256 of the browser's secret; identity is sealed with the secret key.
CREATE TABLE app_sessions (
    id               TEXT COLLATE BINARY PRIMARY KEY,
    account_id       TEXT COLLATE BINARY NOT NULL REFERENCES accounts (id),
    user_id          TEXT COLLATE BINARY NOT NULL REFERENCES app_users (id) ON DELETE CASCADE,
    token_hash       BLOB    NOT NULL UNIQUE,
    bound            TEXT COLLATE BINARY NOT NULL,
    endpoint_id      TEXT COLLATE BINARY NOT NULL,
    url              TEXT COLLATE BINARY NOT NULL,
    issuer           TEXT COLLATE BINARY NOT NULL,
    subject          TEXT COLLATE BINARY NOT NULL,
    provider_session TEXT COLLATE BINARY NOT NULL,
    identity         BLOB    NOT NULL,
    device           TEXT COLLATE BINARY NOT NULL, -- JSON
    search           TEXT COLLATE BINARY NOT NULL, -- URL and IP address, in lower case
    created_at       INTEGER NOT NULL,
    last_active      INTEGER NOT NULL,
    idle             INTEGER NOT NULL, -- microseconds; 0 = none
    ends_at          INTEGER NOT NULL,
    expires_at       INTEGER NOT NULL  -- the earlier of ends_at and last_active + idle
);
CREATE INDEX app_sessions_of_account ON app_sessions (account_id, id);
CREATE INDEX app_sessions_of_user ON app_sessions (user_id, id);
CREATE INDEX app_sessions_by_subject ON app_sessions (account_id, issuer, subject);
CREATE INDEX app_sessions_by_expiry ON app_sessions (expires_at);

CREATE TABLE app_accesses (
    user_id     TEXT COLLATE BINARY NOT NULL REFERENCES app_users (id) ON DELETE CASCADE,
    url         TEXT COLLATE BINARY NOT NULL,
    endpoint_id TEXT COLLATE BINARY NOT NULL,
    first_at    INTEGER NOT NULL,
    last_at     INTEGER NOT NULL,
    PRIMARY KEY (user_id, url)
);

-- Revocations: a login that began before one is refused, and the provider has to ask again. The key is a user's
-- identity_key, or a keyed digest of what a provider's logout named.
CREATE TABLE login_tombstones (
    account_id   TEXT COLLATE BINARY NOT NULL REFERENCES accounts (id),
    identity_key TEXT COLLATE BINARY NOT NULL,
    revoked_at   INTEGER NOT NULL,
    until        INTEGER NOT NULL,
    PRIMARY KEY (account_id, identity_key)
);
CREATE INDEX login_tombstones_by_age ON login_tombstones (until);

-- What may be used once: assertions, logout tokens. digest is a hash.
CREATE TABLE login_once (
    account_id TEXT COLLATE BINARY NOT NULL REFERENCES accounts (id),
    digest     TEXT COLLATE BINARY NOT NULL,
    until      INTEGER NOT NULL,
    PRIMARY KEY (account_id, digest)
);
CREATE INDEX login_once_by_age ON login_once (until);

-- Logins between an identity provider's POST and the page that finishes them. data is sealed.
CREATE TABLE login_tickets (
    hash       BLOB PRIMARY KEY,
    account_id TEXT COLLATE BINARY NOT NULL REFERENCES accounts (id),
    data       BLOB    NOT NULL,
    until      INTEGER NOT NULL
);
CREATE INDEX login_tickets_by_age ON login_tickets (until);

CREATE TABLE dashboard_sessions (
    token_hash BLOB PRIMARY KEY,
    account_id TEXT COLLATE BINARY NOT NULL REFERENCES accounts (id),
    api_key_id TEXT COLLATE BINARY NOT NULL REFERENCES api_keys (id) ON DELETE CASCADE,
    expires_at INTEGER NOT NULL
);
CREATE INDEX dashboard_sessions_of_keys ON dashboard_sessions (api_key_id);
CREATE INDEX dashboard_sessions_by_age ON dashboard_sessions (expires_at);
