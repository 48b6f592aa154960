-- +goose Up

-- Fences for SQL, and tables that demand one.
--
-- A transaction presents its fences in the setting gatepost.fence, local to the
-- transaction: sequencers as pglock writes them, separated by a blank,
-- v1:exclusive:SLOT:TOKEN:NONCE:NAME, the name percent-encoded. One that has been
-- tested in this transaction begins with the transaction's id and a slash. The
-- fenced transactions of pglock and gatepost.fence() present by themselves; by hand it
-- is set_config('gatepost.fence', SEQUENCER, true).
--
-- A guard never believes the setting: before each statement it locks the row with
-- that name, slot, token and nonce. Only that the expiry was tested already is taken
-- from it, and in gatepost.fenced, bound to the transaction's id, for which leases.
--
-- What passes by a guard, and can't be stopped by a trigger:
--   * who owns the table, or is a superuser: DISABLE TRIGGER, DROP TRIGGER, DROP and
--     ALTER TABLE, DETACH PARTITION, session_replication_role = replica;
--   * logical replication, which applies on a subscriber with that setting. ENABLE
--     ALWAYS would break the subscription there, so it is not used;
--   * TRUNCATE of a partition that was attached after the guard, named directly; and
--     a table that was made to inherit after it. guard_table again closes the hole, and
--     gatepost doctor finds it;
--   * a program that sets gatepost.fenced by hand to what only a guard should, in a
--     transaction that writes to such a partition: this stops mistakes, not malice;
--   * a BEFORE or INSTEAD OF trigger, or a rule, that does something else instead.

-- +goose StatementBegin
-- sequencer_name undoes the percent-encoding of a name. Most names have no escape but
-- that of the slash.
CREATE FUNCTION gatepost.sequencer_name(encoded text) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    plain text := replace(encoded, '%2F', '/');
BEGIN
    IF strpos(plain, '%') = 0 THEN
        RETURN plain;
    END IF;
    BEGIN
        RETURN (
            SELECT convert_from(string_agg(
                CASE WHEN left(m.part[1], 1) = '%' AND length(m.part[1]) = 3 THEN decode(substr(m.part[1], 2), 'hex') ELSE convert_to(m.part[1], 'UTF8') END,
                '' ORDER BY m.ord), 'UTF8')
            FROM regexp_matches(encoded, '%[0-9A-Fa-f]{2}|[^%]+|%', 'g') WITH ORDINALITY AS m (part, ord)
        );
    EXCEPTION
        WHEN data_exception THEN
            RETURN NULL; -- it is no text, so no name
    END;
END;
$$;

-- present adds a fence that was tested in this transaction to the presented ones.
CREATE FUNCTION gatepost.present(name text, slot integer, token bigint, nonce uuid) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    presented text := nullif(current_setting('gatepost.fence', true), '');
    this text := format('%s/v1:exclusive:%s:%s:%s:%s', pg_current_xact_id(), slot, token, nonce,
        replace(replace(name, '%', '%25'), ' ', '%20'));
BEGIN
    IF this <> ALL (coalesce(string_to_array(presented, ' '), '{}')) THEN
        PERFORM set_config('gatepost.fence', concat_ws(' ', presented, this), true);
    END IF;
END;
$$;

-- try_fence is the fence of rule F, for a role that may not read the leases: it locks the
-- row FOR KEY SHARE until the transaction ends, tests the expiry by the clock after
-- that, and presents the fence. verdict is live, or says why it was refused: expired,
-- released, superseded, or absent when there is no such lease. The caller must roll
-- back then: nothing here makes it.
CREATE FUNCTION gatepost.try_fence(name text, slot integer, token bigint, nonce uuid, OUT verdict text, OUT current bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    expires_at timestamptz;
    held_nonce uuid;
BEGIN
    SELECT l.expires_at INTO expires_at
    FROM gatepost.leases AS l
    WHERE l.name = try_fence.name
        AND l.slot = try_fence.slot
        AND l.token = try_fence.token
        AND l.nonce = try_fence.nonce
        AND l.expires_at > clock_timestamp() -- a refusal must not keep the takeover out
    FOR KEY SHARE;
    IF FOUND AND expires_at > clock_timestamp() THEN
        PERFORM gatepost.present(name, slot, token, nonce);
        verdict := 'live';
        current := token;
        RETURN;
    END IF;
    SELECT l.token, l.nonce INTO current, held_nonce
    FROM gatepost.leases AS l
    WHERE l.name = try_fence.name
        AND l.slot = try_fence.slot;
    verdict := CASE
        WHEN NOT FOUND THEN 'absent'
        WHEN current <> token THEN 'superseded'
        WHEN held_nonce IS NULL THEN 'released'
        WHEN held_nonce = nonce THEN 'expired'
        ELSE 'superseded'
    END;
END;
$$;

-- fence makes the rest of the transaction conditional on a lease: it returns when the
-- token and the nonce are the current ones and the lease has not expired, and no
-- takeover is granted before the transaction ends. Otherwise it is GP001, and the
-- transaction can only be rolled back. Call it first in the transaction and outside any
-- savepoint: ROLLBACK TO one gives the lock, and what was presented, back. It bounds
-- nothing: a transaction that hangs keeps a takeover out.
CREATE FUNCTION gatepost.fence(name text, slot integer, token bigint, nonce uuid) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    verdict text;
    current bigint;
BEGIN
    SELECT t.verdict, t.current INTO verdict, current
    FROM gatepost.try_fence(name, slot, token, nonce) AS t;
    IF verdict <> 'live' THEN
        RAISE EXCEPTION USING
            ERRCODE = 'GP001',
            MESSAGE = format('lease %s: token %s is fenced off: %s', to_json(name), coalesce(token::text, 'NULL'), CASE
                WHEN verdict = 'absent' THEN 'there is no such lease'
                WHEN verdict = 'expired' THEN 'the lease has expired'
                WHEN verdict = 'released' THEN 'the lease was released'
                WHEN current = token THEN 'this is not its nonce'
                ELSE format('the current one is %s', current) END),
            HINT = 'Roll back, and stop this work: the lease is not yours. To go on, acquire it again.';
    END IF;
END;
$$;

-- fence, with the sequencer as it was handed over, in GATEPOST_SEQUENCER for one.
CREATE FUNCTION gatepost.fence(sequencer text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    part text[] := string_to_array(sequencer, ':');
    name text;
    slot integer;
    token bigint;
    nonce uuid;
BEGIN
    BEGIN
        slot := part[3];
        token := part[4];
        nonce := part[5];
        name := gatepost.sequencer_name(array_to_string(part[6:], ':'));
    EXCEPTION
        WHEN data_exception THEN
            name := NULL; -- and not the error, which would repeat the nonce
    END;
    IF part[1] IS DISTINCT FROM 'v1' OR part[2] IS DISTINCT FROM 'exclusive' OR nonce IS NULL OR name IS NULL OR name = '' THEN
        RAISE EXCEPTION USING
            ERRCODE = 'invalid_parameter_value',
            MESSAGE = 'this is no sequencer',
            HINT = 'It reads v1:exclusive:SLOT:TOKEN:NONCE:NAME, the name percent-encoded; a holder gives it out.';
    END IF;
    PERFORM gatepost.fence(name, slot, token, nonce);
END;
$$;

-- fenced says whether a guard found, earlier in this transaction, that it holds a
-- lease.
CREATE FUNCTION gatepost.fenced(lease text) RETURNS boolean
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN strpos(current_setting('gatepost.fenced', true), chr(10) || pg_current_xact_id() || '/' || lease || chr(10)) > 0;
END;
$$;

-- hold_fences locks the row of each presented fence that is the current one, FOR KEY
-- SHARE, as a fence does: also one presented by hand holds a takeover off until the
-- transaction ends. The expiry is tested by the clock after the lock, once a
-- transaction, so that a lease which lapses in the middle of the writes, while its
-- takeover waits, doesn't tear them apart. What it finds goes with the transaction or the
-- savepoint that it was found in, and so does the lock. At REPEATABLE READ and
-- SERIALIZABLE a takeover since the snapshot is 40001.
CREATE FUNCTION gatepost.hold_fences() RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    presented text := current_setting('gatepost.fence', true);
    xid text := pg_current_xact_id();
    entry text;
    part text[];
    lease text;
    expires_at timestamptz;
    tested text := presented;
    held text := '';
BEGIN
    FOREACH entry IN ARRAY coalesce(string_to_array(presented, ' '), '{}') LOOP
        part := string_to_array(entry, ':'); -- a regular expression takes a hundred times as long
        CONTINUE WHEN cardinality(part) < 6 OR right(part[1], 2) <> 'v1' OR part[2] <> 'exclusive'
            OR length(part[3]) NOT BETWEEN 1 AND 9 OR ltrim(part[3], '0123456789') <> '';
        lease := gatepost.sequencer_name(array_to_string(part[6:], ':'));
        part[2] := substr(entry, length(part[1]) - 1); -- the sequencer
        part[1] := left(part[1], -3); -- the transaction that has tested it
        SELECT l.expires_at INTO expires_at
        FROM gatepost.leases AS l
        WHERE l.name = lease
            AND l.slot = part[3]::integer
            AND l.token::text = part[4]
            AND l.nonce::text = lower(part[5])
            AND (part[1] = xid OR l.expires_at > clock_timestamp()) -- as in try_fence
        FOR KEY SHARE;
        CONTINUE WHEN NOT FOUND;
        IF part[1] IS DISTINCT FROM xid THEN
            CONTINUE WHEN expires_at <= clock_timestamp();
            tested := array_to_string(array_replace(string_to_array(tested, ' '), entry, xid || '/' || part[2]), ' ');
        END IF;
        held := held || chr(10) || xid || '/' || lease || chr(10);
    END LOOP;
    IF tested <> presented THEN
        PERFORM set_config('gatepost.fence', tested, true);
    END IF;
    IF held IS DISTINCT FROM current_setting('gatepost.fenced', true) THEN
        PERFORM set_config('gatepost.fenced', held, true);
    END IF;
END;
$$;

-- refuse is the error of a guard: GP001, with the table, the lease, the current token and
-- the presented one, and what to do.
CREATE FUNCTION gatepost.refuse(table_schema text, table_name text, lease text) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    shown text := format('%I.%I', table_schema, table_name);
    entry text;
    part text[];
    offered text;
    offered_nonce text;
    current_token text;
    current_nonce text;
BEGIN
    FOREACH entry IN ARRAY coalesce(string_to_array(current_setting('gatepost.fence', true), ' '), '{}') LOOP
        part := string_to_array(entry, ':');
        IF right(part[1], 2) = 'v1' AND part[2] = 'exclusive' AND gatepost.sequencer_name(array_to_string(part[6:], ':')) = lease THEN
            offered := part[4];
            offered_nonce := lower(part[5]);
        END IF;
    END LOOP;
    SELECT l.token::text, l.nonce::text INTO current_token, current_nonce
    FROM gatepost.leases AS l
    WHERE l.name = lease
        AND l.slot = 0;
    RAISE EXCEPTION USING
        ERRCODE = 'GP001',
        SCHEMA = table_schema,
        TABLE = table_name,
        MESSAGE = format('table %s is guarded by lease %s: ', shown, to_json(lease)) || CASE
            WHEN offered IS NULL THEN 'this transaction presents no fence of it'
            WHEN current_token IS NULL THEN format('the presented token %s is of no lease that exists', offered)
            WHEN offered <> current_token THEN format('the presented token %s is fenced off', offered)
            WHEN current_nonce IS NULL THEN format('the lease of the presented token %s was released', offered)
            WHEN current_nonce = offered_nonce THEN format('the lease of the presented token %s has expired', offered)
            ELSE format('the presented token %s has another nonce', offered) END
            || format(' (current token %s)', coalesce(current_token, 'none')),
        HINT = CASE
            WHEN offered IS NULL THEN 'Write in a fenced transaction of pglock, such as Lease.InTx, or begin this one with SELECT gatepost.fence(SEQUENCER), with the sequencer of who holds the lease.'
            ELSE 'Roll back, and stop this work: the lease is not yours. To go on, acquire it again.'
                || CASE WHEN current_setting('transaction_isolation') IN ('repeatable read', 'serializable')
                    THEN ' Or, if it was renewed since this transaction took its snapshot, run the transaction again with the fence as its first statement.'
                    ELSE '' END
        END;
END;
$$;

-- guard_statement fires before each statement on a guarded table, also one that
-- touches no row. Where each row names its lease, any current fence passes here, guard_row
-- has the rest, and a TRUNCATE, which would need the fences of all, is refused.
CREATE FUNCTION gatepost.guard_statement() RETURNS trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    presented text := nullif(current_setting('gatepost.fence', true), '');
BEGIN
    IF tg_argv[0] = 'column' AND (tg_op = 'TRUNCATE' OR presented IS NULL) THEN
        RAISE EXCEPTION USING
            ERRCODE = 'GP001',
            SCHEMA = tg_table_schema,
            TABLE = tg_table_name,
            MESSAGE = format('table %I.%I is guarded by the lease that column %I names: ', tg_table_schema, tg_table_name, tg_argv[1])
                || CASE tg_op WHEN 'TRUNCATE' THEN 'TRUNCATE would take rows of all leases' ELSE 'this transaction presents no fence' END,
            HINT = CASE tg_op
                WHEN 'TRUNCATE' THEN 'DELETE the rows of the leases that you hold, or take the guard off: gatepost.unguard_table.'
                ELSE 'Write in a fenced transaction of pglock, such as Lease.InTx, or begin this one with SELECT gatepost.fence(SEQUENCER), with the sequencer of who holds the lease.'
            END;
    END IF;
    PERFORM gatepost.hold_fences();
    IF tg_argv[0] = 'lease' AND gatepost.fenced(tg_argv[1]) IS NOT TRUE THEN
        PERFORM gatepost.refuse(tg_table_schema, tg_table_name, tg_argv[1]);
    END IF;
    RETURN NULL;
END;
$$;

-- guard_row fires after a row whose lease is not known, by fenced, to be held: because
-- it isn't, or because the statement named a partition that guard_statement is not on.
-- After, not before: what counts is the row that was stored, when all other triggers
-- and generated columns had their say.
CREATE FUNCTION gatepost.guard_row() RETURNS trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    was jsonb := CASE WHEN tg_op <> 'INSERT' AND tg_argv[0] = 'column' THEN to_jsonb(old) END;
    is_now jsonb := CASE WHEN tg_op <> 'DELETE' AND tg_argv[0] = 'column' THEN to_jsonb(new) END;
    leases text[] := CASE WHEN tg_argv[0] = 'lease' THEN ARRAY[tg_argv[1]] ELSE '{}' END;
    lease text;
BEGIN
    IF was IS NOT NULL THEN
        leases := leases || (was ->> tg_argv[1]);
    END IF;
    IF is_now IS NOT NULL THEN
        leases := leases || (is_now ->> tg_argv[1]);
    END IF;
    FOREACH lease IN ARRAY leases LOOP
        IF lease IS NULL THEN
            RAISE EXCEPTION USING
                ERRCODE = 'GP001',
                SCHEMA = tg_table_schema,
                TABLE = tg_table_name,
                MESSAGE = format('table %I.%I is guarded by the lease that column %I names: a row names none', tg_table_schema, tg_table_name, tg_argv[1]),
                HINT = 'Give the column a value. If it was renamed, call gatepost.guard_table again.';
        END IF;
        IF gatepost.fenced(lease) IS NOT TRUE THEN
            PERFORM gatepost.hold_fences();
            IF gatepost.fenced(lease) IS NOT TRUE THEN
                PERFORM gatepost.refuse(tg_table_schema, tg_table_name, lease);
            END IF;
        END IF;
    END LOOP;
    RETURN NULL;
END;
$$;

-- guard_table makes a table refuse INSERT, UPDATE, DELETE, TRUNCATE, COPY and MERGE
-- from each transaction that presents no current fence: of one lease for the whole
-- table, or of the lease that a column of the row names, the old row and the new one.
-- Partitions and children are guarded with it. On one lease it is a trigger a
-- statement, and on a partitioned table one a row besides, which PostgreSQL gives to
-- partitions that are attached later. Again with the same lease it closes what holes
-- have come; with another, the guard is replaced. It is for the table's owner, takes
-- effect with its commit, and locks the table against writers until then.
CREATE FUNCTION gatepost.guard_table(target regclass, lease text DEFAULT NULL, lease_column name DEFAULT NULL) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    kind text := CASE WHEN lease_column IS NULL THEN 'lease' ELSE 'column' END;
    named text := coalesce(lease, lease_column);
    args bytea := convert_to(kind, getdatabaseencoding()) || decode('00', 'hex') || convert_to(named, getdatabaseencoding()) || decode('00', 'hex');
    class pg_class;
    member regclass;
    has bytea;
    event text;
    fenced text;
BEGIN
    IF target IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'undefined_table', MESSAGE = 'there is no such table';
    ELSIF (lease IS NULL) = (lease_column IS NULL) THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = 'a guard is by one lease or by a column that names it: give one of lease and lease_column';
    ELSIF lease IS NOT NULL AND octet_length(lease) NOT BETWEEN 1 AND 255 THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('a lease name has 1 to 255 bytes, and not %s', octet_length(lease));
    END IF;
    SELECT c.* INTO class FROM pg_class AS c WHERE c.oid = target;
    IF NOT FOUND OR class.relkind NOT IN ('r', 'p') THEN
        RAISE EXCEPTION USING ERRCODE = 'wrong_object_type', MESSAGE = format('%s is no table', target),
            HINT = 'Guard the table that a view writes to.';
    ELSIF class.relnamespace = 'gatepost'::regnamespace THEN
        RAISE EXCEPTION USING ERRCODE = 'wrong_object_type', MESSAGE = 'Gatepost''s own tables can''t be guarded';
    END IF;
    IF lease_column IS NOT NULL THEN
        PERFORM FROM pg_attribute AS a
        WHERE a.attrelid = target AND a.attname = lease_column AND a.attnum > 0 AND NOT a.attisdropped;
        IF NOT FOUND THEN
            RAISE EXCEPTION USING ERRCODE = 'undefined_column', MESSAGE = format('%s has no column %I', target, lease_column);
        END IF;
        -- What has one text form, whatever the session's settings are.
        PERFORM FROM pg_attribute AS a
        JOIN pg_type AS t ON t.oid = a.atttypid
        WHERE a.attrelid = target AND a.attname = lease_column
            AND coalesce(nullif(t.typbasetype, 0), t.oid) IN ('text'::regtype, 'varchar'::regtype, 'name'::regtype, 'uuid'::regtype, 'int2'::regtype, 'int4'::regtype, 'int8'::regtype)
            AND a.attgenerated IN ('', 's');
        IF NOT FOUND THEN
            RAISE EXCEPTION USING ERRCODE = 'datatype_mismatch',
                MESSAGE = format('column %I of %s can''t name a lease: it must be stored, and of type text, varchar, uuid, smallint, integer or bigint', lease_column, target),
                HINT = 'Add a generated column: GENERATED ALWAYS AS (EXPRESSION) STORED.';
        END IF;
    END IF;

    -- Two calls at the same time wait for each other here, and not in the middle.
    EXECUTE format('LOCK TABLE %s IN SHARE ROW EXCLUSIVE MODE', target);
    SELECT t.tgargs INTO has FROM pg_trigger AS t
    WHERE t.tgrelid = target AND t.tgfoid = 'gatepost.guard_statement'::regproc;
    IF has <> args THEN
        PERFORM gatepost.unguard_table(target);
    END IF;
    FOR member IN
        WITH RECURSIVE tree AS (
            SELECT target::oid AS oid, 0 AS depth
            UNION ALL
            SELECT i.inhrelid, tree.depth + 1 FROM pg_inherits AS i JOIN tree ON i.inhparent = tree.oid
        )
        SELECT tree.oid FROM tree JOIN pg_class AS c ON c.oid = tree.oid AND c.relkind IN ('r', 'p', 'f')
        GROUP BY tree.oid ORDER BY min(tree.depth), tree.oid
    LOOP
        SELECT t.tgargs INTO has FROM pg_trigger AS t
        WHERE t.tgrelid = member AND t.tgfoid = 'gatepost.guard_statement'::regproc;
        IF NOT FOUND THEN
            EXECUTE format('CREATE TRIGGER gatepost_guard BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON %s FOR EACH STATEMENT EXECUTE FUNCTION gatepost.guard_statement(%L, %L)',
                member, kind, named);
        ELSIF has <> args THEN
            RAISE EXCEPTION USING ERRCODE = 'duplicate_object',
                MESSAGE = format('%s, which belongs to %s, has a guard of its own already', member, target),
                HINT = format('Take it off first: SELECT gatepost.unguard_table(%L);', member::text);
        END IF;
        CONTINUE WHEN kind = 'lease' AND class.relkind <> 'p';
        FOREACH event IN ARRAY ARRAY['insert', 'update', 'delete'] LOOP
            PERFORM FROM pg_trigger AS t WHERE t.tgrelid = member AND t.tgname = 'gatepost_guard_' || event;
            CONTINUE WHEN FOUND; -- a partition has its parent's
            -- gatepost.fenced, written out: a function here would be inlined, or called,
            -- by each statement anew, and its writer would need a right to it.
            fenced := 'strpos(current_setting(''gatepost.fenced'', true), chr(10) || pg_current_xact_id()::text || ''/'' || %s || chr(10)) > 0';
            fenced := CASE
                WHEN kind = 'lease' THEN format(fenced, quote_literal(named))
                WHEN event = 'insert' THEN format(fenced, format('new.%I::text', named))
                WHEN event = 'delete' THEN format(fenced, format('old.%I::text', named))
                ELSE format(fenced, format('old.%I::text', named)) || ' AND ' || format(fenced, format('new.%I::text', named))
            END;
            -- IS NOT TRUE: a WHEN that is NULL would let the row pass.
            EXECUTE format('CREATE TRIGGER %I AFTER %s ON %s FOR EACH ROW WHEN ((%s) IS NOT TRUE) EXECUTE FUNCTION gatepost.guard_row(%L, %L)',
                'gatepost_guard_' || event, event, member, fenced, kind, named);
        END LOOP;
    END LOOP;
END;
$$;

-- unguard_table takes the guard off a table and off what belongs to it, and says whether
-- there was one. It is for the table's owner, and waits for all that use the table.
CREATE FUNCTION gatepost.unguard_table(target regclass) RETURNS boolean
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    found_one boolean := false;
    guard record;
BEGIN
    IF target IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'undefined_table', MESSAGE = 'there is no such table';
    END IF;
    SELECT t.tgparentid INTO guard FROM pg_trigger AS t
    WHERE t.tgrelid = target AND t.tgfoid = 'gatepost.guard_row'::regproc AND t.tgparentid <> 0;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'dependent_objects_still_exist',
            MESSAGE = format('the guard of %s is its parent''s', target),
            HINT = 'Take it off the partitioned table, or detach the partition first.';
    END IF;
    FOR guard IN
        WITH RECURSIVE tree AS (
            SELECT target::oid AS oid
            UNION
            SELECT i.inhrelid FROM pg_inherits AS i JOIN tree ON i.inhparent = tree.oid
        )
        SELECT t.tgname, t.tgrelid::regclass AS tgrelid
        FROM tree
        JOIN pg_trigger AS t ON t.tgrelid = tree.oid
        WHERE t.tgfoid IN ('gatepost.guard_statement'::regproc, 'gatepost.guard_row'::regproc)
            AND t.tgparentid = 0
    LOOP
        EXECUTE format('DROP TRIGGER %I ON %s', guard.tgname, guard.tgrelid);
        found_one := true;
    END LOOP;
    RETURN found_one;
END;
$$;
-- +goose StatementEnd

-- A table's writer needs no right for its guards. Trigger functions ask for one where a
-- trigger is made.
REVOKE ALL ON FUNCTION
    gatepost.sequencer_name(text),
    gatepost.present(text, integer, bigint, uuid),
    gatepost.try_fence(text, integer, bigint, uuid),
    gatepost.fence(text, integer, bigint, uuid),
    gatepost.fence(text),
    gatepost.fenced(text),
    gatepost.hold_fences(),
    gatepost.refuse(text, text, text),
    gatepost.guard_statement(),
    gatepost.guard_row(),
    gatepost.guard_table(regclass, text, name),
    gatepost.unguard_table(regclass)
FROM PUBLIC;

-- +goose Down

-- With their functions the guards leave the tables that they are on.
DROP FUNCTION gatepost.unguard_table(regclass);
DROP FUNCTION gatepost.guard_table(regclass, text, name);
DROP FUNCTION gatepost.guard_row() CASCADE;
DROP FUNCTION gatepost.guard_statement() CASCADE;
DROP FUNCTION gatepost.refuse(text, text, text);
DROP FUNCTION gatepost.hold_fences();
DROP FUNCTION gatepost.fenced(text);
DROP FUNCTION gatepost.fence(text);
DROP FUNCTION gatepost.fence(text, integer, bigint, uuid);
DROP FUNCTION gatepost.try_fence(text, integer, bigint, uuid);
DROP FUNCTION gatepost.present(text, integer, bigint, uuid);
DROP FUNCTION gatepost.sequencer_name(text);
