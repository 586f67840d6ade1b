-- The browser that used a session last: account.LastUse.
ALTER TABLE app_sessions ADD COLUMN last_device TEXT COLLATE BINARY NOT NULL DEFAULT '{}'; -- JSON
ALTER TABLE app_sessions ADD COLUMN last_device_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE app_sessions ADD COLUMN device_changed_at INTEGER NOT NULL DEFAULT 0;
UPDATE app_sessions SET last_device = device;
