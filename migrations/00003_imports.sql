-- +goose Up

-- A file that was imported into a table, known by its content and not by its
-- name. The id is the short half of a record's key: (id, line).
CREATE TABLE gatepost.imports (
    id           integer     GENERATED ALWAYS AS IDENTITY,
    sha256       bytea       NOT NULL,
    table_schema text        NOT NULL,
    table_name   text        NOT NULL,
    key          text        NOT NULL,
    file         text        NOT NULL,
    bytes        bigint      NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT imports_pkey PRIMARY KEY (id),
    CONSTRAINT imports_sha256_key UNIQUE (sha256, table_schema, table_name),
    CONSTRAINT imports_sha256_length CHECK (octet_length(sha256) = 32),
    CONSTRAINT imports_bytes_range CHECK (bytes >= 0)
);

COMMENT ON TABLE gatepost.imports IS 'Gatepost: files that were imported, by the SHA-256 of their content';
COMMENT ON COLUMN gatepost.imports.key IS 'what makes a record the same: file-line, content or natural:COLUMN,...';

-- The records of an import that could not be used, as they stood in the file.
CREATE TABLE gatepost.import_rejects (
    import_id  integer     NOT NULL,
    line       bigint      NOT NULL,
    raw        bytea       NOT NULL,
    reason     text        NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT import_rejects_pkey PRIMARY KEY (import_id, line),
    CONSTRAINT import_rejects_import_id_fkey FOREIGN KEY (import_id) REFERENCES gatepost.imports (id) ON DELETE CASCADE,
    CONSTRAINT import_rejects_line_range CHECK (line > 0)
);

COMMENT ON TABLE gatepost.import_rejects IS 'Gatepost: records of a file that were rejected, with the line and the reason';

-- +goose Down

DROP TABLE gatepost.import_rejects;
DROP TABLE gatepost.imports;
