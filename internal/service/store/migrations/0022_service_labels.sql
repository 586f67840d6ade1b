-- Labels that an endpoint asks for on its Services in clusters, KEY=VALUE with a comma between.
ALTER TABLE endpoints ADD COLUMN service_labels TEXT NOT NULL DEFAULT '';
