#!/usr/bin/env bash
# fuzz.sh: each fuzz target for a while, beyond its seeds, which every test run has.
# GATEPOST_FUZZ_TIME is how long: 10s unless set; for a night, bash .ci/fuzz.sh with 1h.
# An input that fails is written to the package's testdata/fuzz: commit it with the fix.
set -euo pipefail

time=${GATEPOST_FUZZ_TIME:-10s}
git grep -l '^func Fuzz' -- '*_test.go' | xargs -n 1 dirname | sort -u | while read -r package; do
    grep -ho '^func Fuzz[A-Za-z0-9_]*' "$package"/*_test.go | cut -d ' ' -f 2 | while read -r target; do
        echo "$package $target"
        go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 5s -parallel 4 "./$package" </dev/null | tail -n 3
    done
done
