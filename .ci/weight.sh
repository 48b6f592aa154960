#!/usr/bin/env bash
# weight.sh: what a program that imports only pglock has to carry. Design: pgx, and
# nothing of goose, testcontainers, sqlc, the command line or the testing package.
set -euo pipefail

root=$(pwd)
consumer=$(mktemp -d)
trap 'rm -rf "$consumer"' EXIT
cd "$consumer"

cat > go.mod <<END
module example.com/consumer

go $(cd "$root" && go list -m -f '{{.GoVersion}}')

require github.com/gatepost/gatepost v0.0.0

replace github.com/gatepost/gatepost => $root
END
cat > main.go <<'END'
package main

import _ "github.com/gatepost/gatepost/pglock"

func main() {}
END

go mod tidy
go build -o /dev/null .
deps=$(go list -deps .)
lines=$(wc -l < go.sum)
if heavy=$(grep -E '^testing(/|$)|pressly/goose|testcontainers|spf13/cobra|sqlc-dev' <<<"$deps"); then
    printf 'A consumer of pglock compiles:\n%s\n' "$heavy"
    exit 1
fi
if [ "$lines" -gt 40 ]; then
    echo "A consumer of pglock gets $lines lines of go.sum; at most 40 are planned."
    exit 1
fi
echo "A consumer of pglock gets $lines lines of go.sum and $(go list -m all | wc -l) modules."
