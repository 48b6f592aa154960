#!/usr/bin/env bash
# check.sh: checks lease.pml with and without each guard, and compares the outcomes with
# what must come out; exit 1 when one differs. It wants spin and gcc, a second each.
#
#   bash docs/model/check.sh       the outcomes
#   bash docs/model/check.sh -v    and the trail of each fault that was found
set -euo pipefail

model=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lease.pml
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
verbose=${1:-}

# verify KIND FLAGS: makes the checker and runs it; its report goes to ./report.
verify() {
    local build=(-DSAFETY -DCOLLAPSE) run=(-m1000000)
    case $1 in
    live) build=(-DNFAIR=3) run=(-a -f -m1000000) ;;
    stale) build=(-DSAFETY -DBFS) ;; # breadth first: the shortest trail
    esac
    rm -f ./*.trail
    # shellcheck disable=SC2086 # the flags are words
    spin -a $2 "$model" >spin.log || { cat spin.log; return 1; }
    gcc -O2 -w "${build[@]}" -o pan pan.c
    ./pan "${run[@]}" >report
}

# outcome: what the report says, in a word or two.
outcome() {
    if grep -q 'error: max search depth' report; then
        echo "not exhaustive"
    elif grep -q 'assertion violated (n==grants)' report; then
        echo "stale write"
    elif grep -q 'acceptance cycle' report; then
        echo "starvation"
    elif grep -q 'errors: 0' report; then
        echo "holds"
    else
        echo "no verdict"
    fi
}

states() { grep -o '[0-9]* states, stored' report | grep -o '^[0-9]*'; }

# trail FLAGS: the steps that lead there, as the model tells them.
trail() {
    # shellcheck disable=SC2086
    spin -T -t -k "$(echo ./*.trail)" $1 "$model" |
        grep -E '^[0-9]+ (acquires|begins|commits|rolls|is refused|hangs)|^the |START OF CYCLE' | sed 's/^/      /'
}

failed=
# expect OUTCOME KIND FLAGS WHAT
expect() {
    local got
    verify "$2" "$3"
    got=$(outcome)
    printf '%-12s %9s states  %s\n' "$got" "$(states)" "$4"
    if [ "$got" != "$1" ]; then
        failed=yes
        printf '  expected: %s\n' "$1"
        head -n 40 report
    elif [ "$got" != holds ] && [ "$verbose" = -v ]; then
        trail "$3"
    fi
}

# complete PROC...: every step of the processes that the last check was about was taken,
# so that what holds does not hold because nothing happened.
complete() {
    local proc missed
    for proc in "$@"; do
        missed=$(sed -n "/^unreached in proctype $proc\$/,/ states)\$/p" report | grep 'state [0-9]*, ' | grep -v -e -end- || true)
        if [ -n "$missed" ]; then
            failed=yes
            printf '  steps of %s that were never taken:\n%s\n' "$proc" "$missed"
        fi
    done
}

expect holds sound "" "no stale write: 3 clients, pauses at every step, lost rows"
complete Client Clock GC
expect "stale write" stale "-DNO_FENCE" "without the fence: the incident"
expect "stale write" stale "-DPLAIN_SELECT" "with a plain SELECT as the fence"
expect "stale write" stale "-DNO_NONCE" "with a fence by token alone"
expect holds sound "-DNO_EXPIRY_TEST" "no stale write without the expiry test either"
expect holds live "-DLIVE" "a waiter gets an expired lease, whoever keeps fencing"
expect starvation live "-DLIVE -DNO_EXPIRY_TEST" "without the expiry test: never"
expect starvation live "-DLIVE -DNO_LIMIT" "without limits on the transaction: never"
if [ -n "$failed" ]; then
    exit 1
fi
