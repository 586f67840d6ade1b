-- A digest under the secret key, of the first server that started; '' before that.
ALTER TABLE store ADD COLUMN key_check TEXT COLLATE BINARY NOT NULL DEFAULT '';
-- The history of the database that the last write was in: postgresTimeline.
ALTER TABLE store ADD COLUMN timeline TEXT COLLATE BINARY NOT NULL DEFAULT '';
