-- RoleSettings reads the settings that a role or the database brings to its sessions,
-- of those named. Both names are empty where a setting is for all of them. What a fence
-- is presented by holds a nonce, and stays unread.
-- name: RoleSettings :many
SELECT
    coalesce(r.rolname::text, '')::text AS role,
    coalesce(d.datname::text, '')::text AS database,
    split_part(c.item, '=', 1)::text AS name,
    (CASE WHEN c.item NOT LIKE 'gatepost.%' THEN substr(c.item, strpos(c.item, '=') + 1) ELSE '' END)::text AS setting
FROM pg_catalog.pg_db_role_setting AS s
CROSS JOIN LATERAL unnest(s.setconfig) AS c (item)
LEFT JOIN pg_catalog.pg_roles AS r ON r.oid = s.setrole
LEFT JOIN pg_catalog.pg_database AS d ON d.oid = s.setdatabase
WHERE (s.setdatabase = 0 OR d.datname = current_database())
    AND split_part(c.item, '=', 1) = ANY (@names::text[])
ORDER BY 1, 2, 3;

-- ServerAbout says where a session is, and as whom.
-- name: ServerAbout :one
SELECT
    current_setting('server_version_num')::integer AS version_num,
    split_part(current_setting('server_version'), ' ', 1)::text AS version,
    current_database()::text AS database,
    current_user::text AS role,
    pg_is_in_recovery()::boolean AS recovering,
    pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')::boolean AS reads_stats;

-- ServerBackend is the process that answers this session, by its own account.
-- name: ServerBackend :one
SELECT pg_backend_pid()::integer AS pid;

-- ServerClock reads the server's clock.
-- name: ServerClock :one
SELECT clock_timestamp()::timestamptz AS now;

-- SettingList reads settings as they are in this session, and where from.
-- name: SettingList :many
SELECT s.name::text AS name, coalesce(s.setting, '')::text AS setting, coalesce(s.source, '')::text AS source
FROM pg_catalog.pg_settings AS s
WHERE s.name = ANY (@names::text[])
ORDER BY s.name;

-- SlotList reads the replication slots that keep old rows from being removed: how
-- many transactions ago they stopped.
-- name: SlotList :many
SELECT s.slot_name::text AS name, coalesce(s.active, false)::boolean AS active, age(s.xmin)::bigint AS xids
FROM pg_catalog.pg_replication_slots AS s
WHERE s.xmin IS NOT NULL
ORDER BY s.slot_name;

-- StandbyList reads the standbys that stream from this server; not the subscribers of
-- logical replication, and not base backups. State is empty where this role may not
-- see it.
-- name: StandbyList :many
SELECT
    coalesce(r.application_name, '')::text AS name,
    coalesce(host(r.client_addr), '')::text AS address,
    coalesce(r.sync_state, '')::text AS sync_state
FROM pg_catalog.pg_stat_replication AS r
WHERE coalesce(r.state, '') <> 'backup'
    AND NOT EXISTS (
        SELECT
        FROM pg_catalog.pg_replication_slots AS s
        WHERE s.active_pid = r.pid
            AND s.slot_type = 'logical'
    )
ORDER BY 1, 2;

-- VersionTable says whether goose's table of versions is there.
-- name: VersionTable :one
SELECT EXISTS (
    SELECT
    FROM pg_catalog.pg_class AS c
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = 'gatepost'
        AND c.relname = 'schema_migrations'
)::boolean AS present;

-- VersionList reads the versions that are applied.
-- name: VersionList :many
SELECT DISTINCT m.version_id
FROM gatepost.schema_migrations AS m
WHERE m.is_applied
    AND m.version_id > 0
ORDER BY m.version_id;
