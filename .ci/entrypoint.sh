#!/bin/sh
# The entrypoint of the image that image.sh builds: what Gatepost's tests need of the
# official one. POSTGRES_USER, POSTGRES_PASSWORD and POSTGRES_DB make the first start;
# arguments that begin with a dash are the server's.
set -eu

case ${1:-} in
-*) set -- postgres "$@" ;;
postgres) ;;
*) exec "$@" ;;
esac

if [ "$(id -u)" = 0 ]; then
    mkdir -p "$PGDATA" /var/run/postgresql
    chown postgres:postgres "$PGDATA" /var/run/postgresql
    chmod 0700 "$PGDATA"
    exec setpriv --reuid postgres --regid postgres --clear-groups "$0" "$@"
fi

if [ ! -s "$PGDATA/PG_VERSION" ]; then
    user=${POSTGRES_USER:-postgres}
    database=${POSTGRES_DB:-$user}
    : "${POSTGRES_PASSWORD:?is not set}"
    printf '%s\n' "$POSTGRES_PASSWORD" > /tmp/password
    initdb -D "$PGDATA" -U "$user" --pwfile /tmp/password --auth scram-sha-256 \
        --encoding UTF8 --locale C --no-sync --no-instructions
    rm /tmp/password
    echo 'host all all all scram-sha-256' >> "$PGDATA/pg_hba.conf"
    if [ "$database" != postgres ]; then
        echo "CREATE DATABASE \"$database\";" | postgres --single -D "$PGDATA" postgres
    fi
    # The official image starts a server for its first steps, and who waits for it waits
    # for this line twice.
    echo "LOG:  database system is ready to accept connections" >&2
fi

exec "$@" -D "$PGDATA" -c listen_addresses='*'
