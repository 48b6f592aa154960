#!/usr/bin/env bash
# readme.sh NAME: prints the commands of README.md's fenced block that follows the line
# <!-- ci:NAME -->, so that CI runs what people are told to run.
set -euo pipefail

commands=$(awk -v mark="<!-- ci:$1 -->" '
    $0 == mark { found = 1; next }
    found && /^```/ { if (block) exit; block = 1; next }
    block { print }
' README.md)
if [ -z "$commands" ]; then
    echo "README.md has no fenced block after <!-- ci:$1 -->" >&2
    exit 1
fi
printf '%s\n' "$commands"
