-- +goose Up

-- Limits on single columns are in domains: they are checked where a value is
-- assigned, and not again by each heartbeat, which assigns none of these.
CREATE DOMAIN gatepost.lease_name AS text COLLATE "C" CONSTRAINT length CHECK (octet_length(VALUE) BETWEEN 1 AND 255);
CREATE DOMAIN gatepost.lease_slot AS integer CONSTRAINT range CHECK (VALUE >= 0);
CREATE DOMAIN gatepost.lease_token AS bigint CONSTRAINT range CHECK (VALUE > 0);
CREATE DOMAIN gatepost.lease_holder AS text CONSTRAINT length CHECK (octet_length(VALUE) BETWEEN 1 AND 255);
CREATE DOMAIN gatepost.lease_data AS jsonb CONSTRAINT length CHECK (octet_length(VALUE::text) <= 65536);

-- One row a name and slot. It outlives every holder: a release empties nonce
-- and holder and keeps the token, so that the next one is higher.
CREATE TABLE gatepost.leases (
    name        gatepost.lease_name  NOT NULL,
    slot        gatepost.lease_slot  NOT NULL DEFAULT 0,
    token       gatepost.lease_token NOT NULL,
    nonce       uuid,
    holder      gatepost.lease_holder,
    acquired_at timestamptz          NOT NULL,
    renewed_at  timestamptz          NOT NULL,
    expires_at  timestamptz          NOT NULL,
    transitions bigint               NOT NULL,
    data        gatepost.lease_data,
    CONSTRAINT leases_pkey PRIMARY KEY (name, slot),
    -- Not needed for uniqueness. It makes the token a key column, so that a
    -- takeover (a new token) is a key update, which waits for FOR KEY SHARE,
    -- and a heartbeat is not one. Every fence depends on it: keep it plain.
    CONSTRAINT leases_token_key UNIQUE (name, slot, token),
    CONSTRAINT leases_held CHECK ((nonce IS NULL) = (holder IS NULL)),
    CONSTRAINT leases_ttl_range CHECK (expires_at - renewed_at BETWEEN interval '0' AND interval '168 hours')
) WITH (fillfactor = 70);

COMMENT ON TABLE gatepost.leases IS 'Gatepost: who holds which name, with which fencing token, until when';
COMMENT ON COLUMN gatepost.leases.token IS 'the fencing token: rises with every acquisition of a name';
COMMENT ON COLUMN gatepost.leases.nonce IS 'identifies one acquisition; empty when nobody holds the name';
COMMENT ON COLUMN gatepost.leases.transitions IS 'how often the name was acquired';

-- +goose Down

DROP TABLE gatepost.leases;
DROP DOMAIN gatepost.lease_data;
DROP DOMAIN gatepost.lease_holder;
DROP DOMAIN gatepost.lease_token;
DROP DOMAIN gatepost.lease_slot;
DROP DOMAIN gatepost.lease_name;
