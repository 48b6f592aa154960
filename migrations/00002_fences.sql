-- +goose Up

-- The highest token that a protected resource has accepted, for a resource in
-- another database than its lease, or a token of another lock service.
CREATE TABLE gatepost.fences (
    resource   text COLLATE "C" NOT NULL,
    token      bigint           NOT NULL,
    updated_at timestamptz      NOT NULL,
    CONSTRAINT fences_pkey PRIMARY KEY (resource),
    CONSTRAINT fences_resource_length CHECK (octet_length(resource) BETWEEN 1 AND 255),
    CONSTRAINT fences_token_range CHECK (token >= 0)
) WITH (fillfactor = 70);

COMMENT ON TABLE gatepost.fences IS 'Gatepost: the highest fencing token each resource has accepted';

-- +goose Down

DROP TABLE gatepost.fences;
