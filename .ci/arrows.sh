#!/usr/bin/env bash
# arrows.sh: the imports that the layout forbids, test files aside.
set -euo pipefail

module=$(go list -m)
imports=$(go list -f '{{$p := .ImportPath}}{{range .Imports}}{{$p}} {{.}}{{"\n"}}{{end}}' ./... | grep -v '^$' | sed "s,$module/,,g")
wrong=0

# forbid WHO WHAT WHY: no import of WHAT by a package WHO, both regular expressions.
forbid() {
    local found
    if found=$(grep -E "^$1 $2\$" <<<"$imports"); then
        printf '%s:\n%s\n' "$3" "$found"
        wrong=1
    fi
}

library='(pglock|idem)(/[^ ]*)?'
rest='[^ ]*'
forbid 'pglock(/[^ ]*)?' 'idem(/[^ ]*)?' 'pglock does not import idem'
forbid 'idem(/[^ ]*)?' 'pglock(/[^ ]*)?' 'idem does not import pglock'
forbid 'pglock(/[^ ]*)?' 'gen/idemdb' 'pglock has gen/lockdb'
forbid 'idem(/[^ ]*)?' 'gen/lockdb' 'idem has gen/idemdb'
forbid "$library" "(migrations|(cmd|examples|internal/cli|internal/pg(test|temp))$rest)" 'a library imports nothing above it'
forbid "$library" '(testing(/[^ ]*)?|github.com/spf13/cobra)' 'a library is light'
forbid "(cmd|examples)/$rest" "gen/$rest" 'a program uses the libraries'
forbid "$rest" 'internal/pgtest' 'pgtest is for tests'
imports=$(grep -v '^migrations ' <<<"$imports")
forbid "$rest" "github.com/pressly/goose$rest" 'only migrations imports goose'
exit $wrong
