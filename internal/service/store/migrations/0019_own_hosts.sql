-- The hosts of the server's own URLs, with a space between: commands that grant domains have to know them.
ALTER TABLE store ADD COLUMN own_hosts TEXT NOT NULL DEFAULT '';
