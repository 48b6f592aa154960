-- +goose Up

-- One row a name and slot. It outlives every holder: a release empties nonce
-- and holder and keeps the token, so that the next one is higher.
CREATE TABLE gatepost.leases (
    name        text COLLATE "C" NOT NULL,
    slot        integer          NOT NULL DEFAULT 0,
    token       bigint           NOT NULL,
    nonce       uuid,
    holder      text,
    acquired_at timestamptz      NOT NULL,
    renewed_at  timestamptz      NOT NULL,
    expires_at  timestamptz      NOT NULL,
    transitions bigint           NOT NULL,
    data        jsonb,
    CONSTRAINT leases_pkey PRIMARY KEY (name, slot),
    -- Not needed for uniqueness. It makes the token a key column, so that a
    -- takeover (a new token) is a key update, which waits for FOR KEY SHARE,
    -- and a heartbeat is not one. Every fence depends on it: keep it plain.
    CONSTRAINT leases_token_key UNIQUE (name, slot, token),
    CONSTRAINT leases_name_length CHECK (octet_length(name) BETWEEN 1 AND 255),
    CONSTRAINT leases_slot_range CHECK (slot >= 0),
    CONSTRAINT leases_token_range CHECK (token > 0),
    CONSTRAINT leases_holder_length CHECK (octet_length(holder) BETWEEN 1 AND 255),
    CONSTRAINT leases_held CHECK ((nonce IS NULL) = (holder IS NULL)),
    CONSTRAINT leases_transitions_range CHECK (transitions > 0),
    CONSTRAINT leases_ttl_range CHECK (expires_at - renewed_at BETWEEN interval '0' AND interval '168 hours'),
    CONSTRAINT leases_data_length CHECK (octet_length(data::text) <= 65536)
) WITH (fillfactor = 70);

COMMENT ON TABLE gatepost.leases IS 'Gatepost: who holds which name, with which fencing token, until when';
COMMENT ON COLUMN gatepost.leases.token IS 'the fencing token: rises with every acquisition of a name';
COMMENT ON COLUMN gatepost.leases.nonce IS 'identifies one acquisition; empty when nobody holds the name';
COMMENT ON COLUMN gatepost.leases.transitions IS 'how often the name was acquired';

-- +goose Down

DROP TABLE gatepost.leases;
