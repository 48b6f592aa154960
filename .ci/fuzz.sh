#!/usr/bin/env bash
# fuzz.sh: each fuzz target for a while, beyond its seeds, which every test run has.
# GATEPOST_FUZZ_TIME is how long, or how many inputs: 200000x unless set, since a run that
# is ended by its time fails now and then with "context deadline exceeded" and no input;
# for a night, bash .ci/fuzz.sh with 1h. An input that fails is written to the package's
# testdata/fuzz: commit it with the fix.
set -euo pipefail

amount=${GATEPOST_FUZZ_TIME:-200000x}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
git grep -l '^func Fuzz' -- '*_test.go' | xargs -n 1 dirname | sort -u | while read -r package; do
    grep -ho '^func Fuzz[A-Za-z0-9_]*' "$package"/*_test.go | cut -d ' ' -f 2 | while read -r target; do
        echo "$package $target"
        if ! go test -run '^$' -fuzz "^$target\$" -fuzztime "$amount" -fuzzminimizetime 5s -parallel 4 "./$package" </dev/null >"$log" 2>&1; then
            cat "$log"
            exit 1
        fi
        tail -n 3 "$log"
    done
done
