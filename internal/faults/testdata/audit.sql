-- What the workers' transactions leave behind, in tables that nobody ever changes.
CREATE SCHEMA faults;

-- Fenced writes. counter is the register of the name: read without a lock and raised by
-- one, so that only the fence keeps two writers from the same number.
CREATE TABLE faults.writes (
    op      text        NOT NULL,
    kind    text        NOT NULL,
    name    text        NOT NULL,
    token   bigint      NOT NULL,
    nonce   uuid        NOT NULL,
    counter bigint      NOT NULL,
    xid     xid8        NOT NULL DEFAULT pg_current_xact_id(),
    began   timestamptz NOT NULL DEFAULT now() -- of the transaction: before its fence
);
CREATE INDEX ON faults.writes (name, kind, counter);
CREATE INDEX ON faults.writes (op);

-- What happened under idempotency keys. No unique index: nothing but idem keeps a second
-- one out.
CREATE TABLE faults.effects (
    op   text NOT NULL,
    kind text NOT NULL,
    key  text NOT NULL,
    xid  xid8 NOT NULL DEFAULT pg_current_xact_id()
);
CREATE INDEX ON faults.effects (kind, key);

-- Each change of a lease. The row's lock is held while it is logged, so n is in the
-- order of the changes of a name. snap is taken after the lock was had: what is not
-- visible in it had not committed when the change was made.
CREATE TABLE faults.changes (
    n           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    what        text        NOT NULL,
    name        text        NOT NULL,
    old_token   bigint,
    old_nonce   uuid,
    old_expires timestamptz,
    token       bigint,
    nonce       uuid,
    acquired    timestamptz,
    renewed     timestamptz,
    expires     timestamptz,
    snap        pg_snapshot NOT NULL
);
CREATE INDEX ON faults.changes (name, what, token);

-- VOLATILE on purpose: pg_current_snapshot() is a new one then, at READ COMMITTED.
CREATE FUNCTION faults.log() RETURNS trigger LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO faults.changes (what, name, old_token, old_nonce, old_expires, token, nonce, acquired, renewed, expires, snap)
    VALUES (
        CASE
            WHEN tg_op = 'DELETE' THEN 'delete'
            WHEN tg_op = 'INSERT' OR new.token <> old.token THEN 'grant'
            WHEN old.nonce IS NOT NULL AND new.nonce IS NULL THEN 'release'
            WHEN new.nonce IS NOT DISTINCT FROM old.nonce THEN 'renew'
            ELSE 'odd'
        END,
        coalesce(new.name, old.name), old.token, old.nonce, old.expires_at,
        new.token, new.nonce, new.acquired_at, new.renewed_at, new.expires_at,
        pg_current_snapshot()
    );
    RETURN NULL;
END;
$$;

CREATE TRIGGER log AFTER INSERT OR UPDATE OR DELETE ON gatepost.leases
FOR EACH ROW EXECUTE FUNCTION faults.log();
