-- Goose's version table, which no migration makes, for sqlc.
CREATE TABLE gatepost.schema_migrations (
    id         integer   NOT NULL,
    version_id bigint    NOT NULL,
    is_applied boolean   NOT NULL,
    tstamp     timestamp NOT NULL
);
