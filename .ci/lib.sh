# Shared by the scripts of this directory; sourced, not run.

current= durations=() skips=()

# step NAME COMMAND...: runs it, and remembers how long it took. It must not be called
# in a condition, where bash turns -e off.
step() {
    local start=$SECONDS
    current=$1
    printf '\n== %s\n' "$current"
    shift
    "$@"
    durations+=("$(printf '%5d s  %s' $((SECONDS - start)) "$current")")
}

# skip WHAT WHY: says it now and in the summary.
skip() {
    printf -- '-- skipped: %s: %s\n' "$1" "$2"
    skips+=("$1: $2")
}

summary() {
    printf '\n== Summary, %d s\n' "$SECONDS"
    printf '%s\n' "${durations[@]}"
    if [ ${#skips[@]} = 0 ]; then
        echo 'Nothing was skipped.'
    else
        echo 'Skipped:'
        printf '  %s\n' "${skips[@]}"
    fi
}

have() { command -v "$1" >/dev/null 2>&1; }

# apt_install PACKAGE...: installs them, or says by its status that it can't. Needs $work.
apt_install() {
    have apt-get && [ "$(id -u)" = 0 ] || return 1
    if [ -z "${apt_updated:-}" ]; then
        apt_get update || return 1
        apt_updated=yes
    fi
    apt_get install --no-install-recommends "$@"
}

# apt_get shows its output only when it fails.
apt_get() {
    apt-get -q -y -o DPkg::Lock::Timeout=120 "$@" >"$work/apt.log" 2>&1 </dev/null && return
    tail -n 5 "$work/apt.log"
    return 1
}
