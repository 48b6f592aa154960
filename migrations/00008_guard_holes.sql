-- +goose Up

-- Guards that stand where they were passed by, and a fence that says what is wrong.
--
-- A table that is a partition or a child of one that is not guarded was open to what is
-- written through that one: guard_table has to be called again for it, and gatepost
-- doctor finds it.
--
-- What passes by a guard is listed in docs/guards.md.

-- +goose StatementBegin
-- fence is what it was, and says so of a NULL and in a READ ONLY transaction.
CREATE OR REPLACE FUNCTION gatepost.fence(name text, slot integer, token bigint, nonce uuid) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    verdict text;
    current bigint;
BEGIN
    IF current_setting('transaction_read_only') = 'on' THEN
        RAISE EXCEPTION USING
            ERRCODE = 'read_only_sql_transaction',
            MESSAGE = 'a fence locks its lease, and this transaction is READ ONLY',
            HINT = CASE WHEN pg_is_in_recovery()
                THEN 'This server is a standby: connect to the primary.'
                ELSE 'Begin the transaction READ WRITE, or leave the fence out: what only reads needs none.' END;
    END IF;
    SELECT t.verdict, t.current INTO verdict, current
    FROM gatepost.try_fence(name, slot, token, nonce) AS t;
    IF verdict <> 'live' THEN
        IF num_nulls(name, slot, token, nonce) > 0 THEN
            RAISE EXCEPTION USING
                ERRCODE = 'invalid_parameter_value',
                MESSAGE = format('a fence needs a name, a slot, a token and a nonce; NULL was given for the %s', concat_ws(', ',
                    CASE WHEN name IS NULL THEN 'name' END, CASE WHEN slot IS NULL THEN 'slot' END,
                    CASE WHEN token IS NULL THEN 'token' END, CASE WHEN nonce IS NULL THEN 'nonce' END)),
                HINT = 'Give all four of one lease, its slot 0; or gatepost.fence(SEQUENCER), with the sequencer of who holds the lease.';
        END IF;
        RAISE EXCEPTION USING
            ERRCODE = 'GP001',
            MESSAGE = format('lease %s: token %s is fenced off: %s', to_json(name), token, CASE
                WHEN verdict = 'absent' THEN 'there is no such lease'
                WHEN verdict = 'expired' THEN 'the lease has expired'
                WHEN verdict = 'released' THEN 'the lease was released'
                WHEN current = token THEN 'this is not its nonce'
                ELSE format('the current one is %s', current) END),
            HINT = 'Roll back, and stop this work: the lease is not yours. To go on, acquire it again.';
    END IF;
END;
$$;

-- sequencer_name is what it was, whatever a session takes a backslash for
-- (standard_conforming_strings).
CREATE OR REPLACE FUNCTION gatepost.sequencer_name(encoded text) RETURNS text
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

-- fenced says whether a guard found, earlier in this transaction, that it holds a
-- lease. One whose name has a line break is written in hexadecimal, after another sign
-- than a slash: with it a name could be two, and the second one somebody else's.
CREATE OR REPLACE FUNCTION gatepost.fenced(lease text) RETURNS boolean
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN strpos(current_setting('gatepost.fenced', true), chr(10) || pg_current_xact_id()
        || CASE strpos(lease, chr(10)) WHEN 0 THEN '/' || lease ELSE '!' || encode(convert_to(lease, 'UTF8'), 'hex') END || chr(10)) > 0;
END;
$$;

-- hold_fences locks the row of each presented fence that is the current one, FOR KEY
-- SHARE, as a fence does: also one presented by hand holds a takeover off until the
-- transaction ends. The expiry is tested by the clock after the lock, once a
-- transaction, so that a lease which lapses in the middle of the writes, while its
-- takeover waits, doesn't tear them apart. What it finds goes with the transaction or the
-- savepoint that it was found in, and so does the lock. At REPEATABLE READ and
-- SERIALIZABLE a takeover since the snapshot is 40001.
CREATE OR REPLACE FUNCTION gatepost.hold_fences() RETURNS void
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
        held := held || chr(10) || xid
            || CASE strpos(lease, chr(10)) WHEN 0 THEN '/' || lease ELSE '!' || encode(convert_to(lease, 'UTF8'), 'hex') END || chr(10);
    END LOOP;
    IF tested <> presented THEN
        PERFORM set_config('gatepost.fence', tested, true);
    END IF;
    IF held IS DISTINCT FROM current_setting('gatepost.fenced', true) THEN
        PERFORM set_config('gatepost.fenced', held, true);
    END IF;
END;
$$;

-- guard_row fires after a row whose lease is not known, by fenced, to be held: because
-- it isn't, or because the statement named another table than this. After, not before:
-- what counts is the row that was stored, when all other triggers and generated columns
-- had their say. It runs as Gatepost's owner, so it calls nothing of the table's: the
-- column is read only where the text of its type is the system's own, and of the others
-- not even that. (to_jsonb of a row calls casts that the table's owner has made.)
CREATE OR REPLACE FUNCTION gatepost.guard_row() RETURNS trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    leases text[] := CASE WHEN tg_argv[0] = 'lease' THEN ARRAY[tg_argv[1]] ELSE '{}' END;
    lease text;
BEGIN
    IF tg_argv[0] = 'column' THEN
        PERFORM FROM pg_attribute AS a
        JOIN pg_type AS t ON t.oid = a.atttypid
        WHERE a.attrelid = tg_relid AND a.attname = tg_argv[1] AND a.attnum > 0 AND NOT a.attisdropped
            AND coalesce(nullif(t.typbasetype, 0), t.oid) IN ('text'::regtype, 'varchar'::regtype, 'name'::regtype, 'uuid'::regtype, 'int2'::regtype, 'int4'::regtype, 'int8'::regtype);
        IF NOT FOUND THEN
            leases := ARRAY[NULL];
        ELSE
            IF tg_op <> 'INSERT' THEN
                EXECUTE format('SELECT ($1).%I::text', tg_argv[1]) INTO lease USING old;
                leases := leases || lease;
            END IF;
            IF tg_op <> 'DELETE' THEN
                EXECUTE format('SELECT ($1).%I::text', tg_argv[1]) INTO lease USING new;
                leases := leases || lease;
            END IF;
        END IF;
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
-- partitions that are attached later; so it is on a table that is itself a partition or a
-- child of one that isn't guarded, for what is written through that. Again with the same
-- lease it closes what holes have come, also of triggers that were disabled or changed;
-- with another, the guard is replaced. It is for the table's owner, takes effect with its
-- commit, and locks the table against writers until then.
CREATE OR REPLACE FUNCTION gatepost.guard_table(target regclass, lease text DEFAULT NULL, lease_column name DEFAULT NULL) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    kind text := CASE WHEN lease_column IS NULL THEN 'lease' ELSE 'column' END;
    named text := coalesce(lease, lease_column);
    args bytea := convert_to(kind, getdatabaseencoding()) || decode('00', 'hex') || convert_to(named, getdatabaseencoding()) || decode('00', 'hex');
    class pg_class;
    member regclass;
    member_kind "char";
    outside boolean;
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
        -- Under such a collation one lease's name would be found in another's.
        PERFORM FROM pg_attribute AS a
        JOIN pg_collation AS c ON c.oid = a.attcollation
        WHERE a.attrelid = target AND a.attname = lease_column AND NOT c.collisdeterministic;
        IF FOUND THEN
            RAISE EXCEPTION USING ERRCODE = 'datatype_mismatch',
                MESSAGE = format('column %I of %s can''t name a lease: its collation takes different names for equal', lease_column, target),
                HINT = format('ALTER TABLE %s ALTER COLUMN %I TYPE text COLLATE "C";', target, lease_column);
        END IF;
    END IF;

    -- Two calls at the same time wait for each other here, and not in the middle.
    EXECUTE format('LOCK TABLE %s IN SHARE ROW EXCLUSIVE MODE', target);
    PERFORM FROM pg_trigger AS t
    WHERE t.tgrelid = target AND t.tgfoid = 'gatepost.guard_row'::regproc AND t.tgparentid <> 0 AND t.tgargs <> args;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'duplicate_object',
            MESSAGE = format('%s is guarded with the table that it is a partition of, and by another lease', target),
            HINT = 'Guard the partitioned table, or detach the partition first.';
    END IF;
    PERFORM FROM pg_trigger AS t
    WHERE t.tgrelid = target AND t.tgfoid IN ('gatepost.guard_statement'::regproc, 'gatepost.guard_row'::regproc) AND t.tgargs <> args;
    IF FOUND THEN
        PERFORM gatepost.unguard_table(target);
    END IF;
    FOR member, member_kind, outside IN
        WITH RECURSIVE tree AS (
            SELECT target::oid AS oid, 0 AS depth
            UNION ALL
            SELECT i.inhrelid, tree.depth + 1 FROM pg_inherits AS i JOIN tree ON i.inhparent = tree.oid
        )
        SELECT tree.oid, c.relkind, EXISTS (
            SELECT FROM pg_inherits AS i
            WHERE i.inhrelid = tree.oid AND NOT EXISTS (SELECT FROM tree AS parent WHERE parent.oid = i.inhparent)
        )
        FROM tree JOIN pg_class AS c ON c.oid = tree.oid AND c.relkind IN ('r', 'p', 'f')
        GROUP BY tree.oid, c.relkind ORDER BY min(tree.depth), tree.oid
    LOOP
        PERFORM FROM pg_trigger AS t
        WHERE t.tgrelid = member AND t.tgfoid = 'gatepost.guard_statement'::regproc AND t.tgargs <> args;
        IF FOUND THEN
            RAISE EXCEPTION USING ERRCODE = 'duplicate_object',
                MESSAGE = format('%s, which belongs to %s, has a guard of its own already', member, target),
                HINT = format('Take it off first: SELECT gatepost.unguard_table(%L);', member::text);
        END IF;
        -- OR REPLACE: one that was disabled or changed is made what it should be.
        EXECUTE format('CREATE OR REPLACE TRIGGER gatepost_guard BEFORE INSERT OR UPDATE OR DELETE %s ON %s FOR EACH STATEMENT EXECUTE FUNCTION gatepost.guard_statement(%L, %L)',
            CASE WHEN member_kind = 'f' AND current_setting('server_version_num')::integer < 160000 THEN '' ELSE 'OR TRUNCATE' END,
            member, kind, named);
        -- Who writes to a table that this one is a partition or a child of names that one,
        -- and only the triggers of rows fire here.
        CONTINUE WHEN kind = 'lease' AND class.relkind <> 'p' AND NOT outside;
        FOREACH event IN ARRAY ARRAY['insert', 'update', 'delete'] LOOP
            PERFORM FROM pg_trigger AS t
            WHERE t.tgrelid = member AND t.tgname = 'gatepost_guard_' || event AND t.tgparentid <> 0;
            CONTINUE WHEN FOUND; -- it was made, or replaced, with its parent's
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
            EXECUTE format('CREATE OR REPLACE TRIGGER %I AFTER %s ON %s FOR EACH ROW WHEN ((%s) IS NOT TRUE) EXECUTE FUNCTION gatepost.guard_row(%L, %L)',
                'gatepost_guard_' || event, event, member, fenced, kind, named);
        END LOOP;
    END LOOP;
END;
$$;
-- +goose StatementEnd

-- +goose Down

-- The functions as 00007_guards.sql made them. A trigger of a row, where one was added,
-- stays until the guard is taken off.

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION gatepost.fence(name text, slot integer, token bigint, nonce uuid) RETURNS void
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

CREATE OR REPLACE FUNCTION gatepost.fenced(lease text) RETURNS boolean
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN strpos(current_setting('gatepost.fenced', true), chr(10) || pg_current_xact_id() || '/' || lease || chr(10)) > 0;
END;
$$;

CREATE OR REPLACE FUNCTION gatepost.hold_fences() RETURNS void
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

CREATE OR REPLACE FUNCTION gatepost.guard_row() RETURNS trigger
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

CREATE OR REPLACE FUNCTION gatepost.guard_table(target regclass, lease text DEFAULT NULL, lease_column name DEFAULT NULL) RETURNS void
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
-- +goose StatementEnd
