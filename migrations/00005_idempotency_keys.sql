-- +goose Up

-- Limits on single columns are in domains, as for the leases: checked where a value
-- is assigned, and not compiled anew by each statement.
CREATE DOMAIN gatepost.idem_operation AS text COLLATE "C" CONSTRAINT length CHECK (octet_length(VALUE) BETWEEN 1 AND 200);
CREATE DOMAIN gatepost.idem_scope AS text COLLATE "C" CONSTRAINT length CHECK (octet_length(VALUE) BETWEEN 1 AND 200);
-- Not {1,255}: that takes 70 us to check, and + takes 4.
CREATE DOMAIN gatepost.idem_key AS text COLLATE "C" CONSTRAINT visible CHECK (VALUE ~ '^[\x21-\x7e]+$' AND octet_length(VALUE) <= 255);
CREATE DOMAIN gatepost.idem_state AS smallint CONSTRAINT known CHECK (VALUE BETWEEN 1 AND 4);
CREATE DOMAIN gatepost.idem_fingerprint AS bytea CONSTRAINT sha256 CHECK (octet_length(VALUE) = 32);

-- One row a key: who has claimed it, and what came of it.
CREATE TABLE gatepost.idempotency_keys (
    operation           gatepost.idem_operation   NOT NULL,
    scope               gatepost.idem_scope       NOT NULL,
    key                 gatepost.idem_key         NOT NULL,
    state               gatepost.idem_state       NOT NULL,
    fingerprint         gatepost.idem_fingerprint NOT NULL,
    fingerprint_version smallint                  NOT NULL,
    attempt             uuid                      NOT NULL,
    attempt_no          bigint                    NOT NULL,
    lease_until         timestamptz,
    status              integer,
    headers             jsonb,
    body                bytea,
    body_len            bigint,
    codec               text,
    created_at          timestamptz               NOT NULL,
    done_at             timestamptz,
    expires_at          timestamptz               NOT NULL,
    CONSTRAINT idempotency_keys_pkey PRIMARY KEY (operation, scope, key)
) WITH (fillfactor = 80);

-- For the collection of old rows.
CREATE INDEX idempotency_keys_expires_at_idx ON gatepost.idempotency_keys (expires_at);

COMMENT ON TABLE gatepost.idempotency_keys IS 'Gatepost: which operation ran under which idempotency key, and its reply';
COMMENT ON COLUMN gatepost.idempotency_keys.scope IS 'whose key it is: a tenant, an account, a user';
COMMENT ON COLUMN gatepost.idempotency_keys.state IS '1 running, 2 done, 3 tombstone (done, the reply was too large), 4 released';
COMMENT ON COLUMN gatepost.idempotency_keys.fingerprint IS 'SHA-256 over the request: tells a retry from a reused key';
COMMENT ON COLUMN gatepost.idempotency_keys.attempt IS 'identifies one claim; never reused';
COMMENT ON COLUMN gatepost.idempotency_keys.lease_until IS 'until when a running claim is its holder''s (lease mode); empty in transaction mode and in other states';

-- What the steps of an operation in lease mode gave, for an attempt that goes on
-- after another one.
CREATE TABLE gatepost.idempotency_steps (
    operation gatepost.idem_operation NOT NULL,
    scope     gatepost.idem_scope     NOT NULL,
    key       gatepost.idem_key       NOT NULL,
    step      text COLLATE "C"        NOT NULL,
    output    bytea                   NOT NULL,
    done_at   timestamptz             NOT NULL,
    CONSTRAINT idempotency_steps_pkey PRIMARY KEY (operation, scope, key, step),
    CONSTRAINT idempotency_steps_key_fkey FOREIGN KEY (operation, scope, key)
        REFERENCES gatepost.idempotency_keys (operation, scope, key) ON DELETE CASCADE,
    CONSTRAINT idempotency_steps_step_length CHECK (octet_length(step) BETWEEN 1 AND 200)
);

COMMENT ON TABLE gatepost.idempotency_steps IS 'Gatepost: finished steps of operations in lease mode';

-- +goose StatementBegin
-- An effect can't commit without its finished record, whatever the caller's code
-- does: a claim of transaction mode that still runs at COMMIT ends it.
CREATE FUNCTION gatepost.idempotency_keys_finished() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    -- Operators are named with their schema, since SET search_path would cost each
    -- effect 15 us.
    IF EXISTS (
        SELECT
        FROM gatepost.idempotency_keys AS k
        WHERE k.operation OPERATOR(pg_catalog.=) new.operation
            AND k.scope OPERATOR(pg_catalog.=) new.scope
            AND k.key OPERATOR(pg_catalog.=) new.key
            AND k.attempt OPERATOR(pg_catalog.=) new.attempt
            AND k.state OPERATOR(pg_catalog.=) 1
            AND k.lease_until IS NULL
    ) THEN
        RAISE EXCEPTION USING
            ERRCODE = 'GP002',
            MESSAGE = pg_catalog.format('idempotency key of operation %L would be committed while it runs', new.operation),
            HINT = 'Store the reply (Do and DoTx do) before COMMIT and before SET CONSTRAINTS ALL IMMEDIATE, or roll back.';
    END IF;
    RETURN NULL;
END;
$$;
-- +goose StatementEnd

CREATE CONSTRAINT TRIGGER idempotency_keys_finished
AFTER INSERT OR UPDATE ON gatepost.idempotency_keys
DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW
WHEN (new.state = 1 AND new.lease_until IS NULL)
EXECUTE FUNCTION gatepost.idempotency_keys_finished();

-- +goose Down

DROP TABLE gatepost.idempotency_steps;
DROP TABLE gatepost.idempotency_keys;
DROP FUNCTION gatepost.idempotency_keys_finished();
DROP DOMAIN gatepost.idem_fingerprint;
DROP DOMAIN gatepost.idem_state;
DROP DOMAIN gatepost.idem_key;
DROP DOMAIN gatepost.idem_scope;
DROP DOMAIN gatepost.idem_operation;
