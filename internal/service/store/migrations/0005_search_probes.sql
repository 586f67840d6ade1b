-- The columns search and provider_search of app_users hold folded text: foldUsers writes it.

-- A row comes and goes when the store is asked whether it can write.
CREATE TABLE write_probes (
    data BLOB NOT NULL
);
