-- +goose Up

-- Who waits for which lease: a hint for whom to wake, and nothing depends on it.
-- UNLOGGED, since after a crash the waiters write it again.
CREATE UNLOGGED TABLE gatepost.waiters (
    client     text COLLATE "C" NOT NULL,
    waiter     bigint           NOT NULL,
    name       text COLLATE "C" NOT NULL,
    slot       integer          NOT NULL DEFAULT 0,
    holder     text             NOT NULL,
    since      timestamptz      NOT NULL,
    expires_at timestamptz      NOT NULL,
    CONSTRAINT waiters_pkey PRIMARY KEY (client, waiter)
) WITH (fillfactor = 70);

-- Not on since: it would cost the refreshes their HOT updates, and a name has few
-- rows, one for each client that waits.
CREATE INDEX waiters_name_idx ON gatepost.waiters (name, slot);

COMMENT ON TABLE gatepost.waiters IS 'Gatepost: which clients wait for which lease';

-- A leader that hands over keeps the name free for its candidate for a moment.
ALTER TABLE gatepost.leases
    ADD COLUMN reserved_for gatepost.lease_holder,
    ADD COLUMN reserved_until timestamptz;

-- +goose Down

ALTER TABLE gatepost.leases
    DROP COLUMN reserved_until,
    DROP COLUMN reserved_for;

DROP TABLE gatepost.waiters;
