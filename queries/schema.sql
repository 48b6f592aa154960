-- The schema that migrations.Up creates before the first migration, for sqlc.
CREATE SCHEMA gatepost;
