# A Docker engine and the tests that need one; sourced by run. Needs lib.sh, postgres.sh
# and $work.

dockerd_pid=

engine_answers() { have docker && docker version >/dev/null 2>&1; }

# ensure_engine: an engine that answers, ours if there is none; else engine_why.
ensure_engine() {
    engine_answers && return
    engine_why="not root"
    [ "$(id -u)" = 0 ] || return 1
    engine_why="docker.io can't be installed"
    have dockerd || apt_install docker.io || return 1
    have docker || apt_install docker-cli || return 1
    engine_answers && return # the package started it
    start_engine
}

# start_engine: one of our own, with all its files in $work.
start_engine() {
    export DOCKER_HOST=unix://$work/docker.sock
    dockerd --host "$DOCKER_HOST" --pidfile "$work/dockerd.pid" \
        --data-root "$work/docker" --exec-root "$work/docker-exec" \
        >"$work/dockerd.log" 2>&1 </dev/null &
    dockerd_pid=$!
    local deadline=$((SECONDS + 60))
    until engine_answers; do
        if ! kill -0 "$dockerd_pid" 2>/dev/null || [ $SECONDS -ge $deadline ]; then
            engine_why="dockerd does not start: $(tail -n 1 "$work/dockerd.log")"
            return 1
        fi
        sleep 0.2
    done
}

# stop_engine: ours, if there is one. It ends its containers itself, and may leave its
# data root mounted.
stop_engine() {
    [ -n "$dockerd_pid" ] || return 0
    kill "$dockerd_pid" 2>/dev/null || true
    wait "$dockerd_pid" 2>/dev/null || true
    dockerd_pid=
    awk -v work="$work/" 'index($2, work) == 1 { print $2 }' /proc/self/mounts | sort -r | xargs -r umount || true
}

# container_tests: internal/itest against an image made here, since none can be pulled.
container_tests() {
    if ! ensure_engine; then
        skip "container tests" "$engine_why"
        return
    fi
    local bin tag
    bin=$(local_bin)
    tag=gatepost-ci:$(major_of "$bin")
    bash .ci/image.sh "$bin" "$tag"
    if ! engine_why=$(docker run --rm --publish 127.0.0.1::5432 --entrypoint sh "$tag" -c : 2>&1); then
        skip "container tests" "this machine can't run containers: $(tail -n 1 <<<"$engine_why")"
        return
    fi
    (
        cd internal/itest
        # Ryuk, which cleans up after a killed test, is an image that can't be pulled.
        GATEPOST_PG_IMAGE=$tag TESTCONTAINERS_RYUK_DISABLED=true TESTCONTAINERS_HOST_OVERRIDE=127.0.0.1 \
            go test -count=1 ./...
    )
    docker image rm "$tag" >/dev/null
}
