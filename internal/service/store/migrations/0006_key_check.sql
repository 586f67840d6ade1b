-- A digest under the secret key, of the first server that started; '' before that.
ALTER TABLE store ADD COLUMN key_check TEXT COLLATE BINARY NOT NULL DEFAULT '';
