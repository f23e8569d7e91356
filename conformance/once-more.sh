#!/usr/bin/env bash
# Runs a program, and once more if it fails: what then passes is flaky and counts as passed.
# It is named, and what it printed the first time is added to target/flaky.txt.
#
#   conformance/once-more.sh NAME PROGRAM [ARGUMENTS…]
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
flaky=$("$root/.cargo/target-folder")/flaky.txt
name=$1
shift
log=$(mktemp)
trap 'rm -f "$log"' EXIT

status=0
# What is interrupted still says how it ends.
"$@" 2>&1 | tee --ignore-interrupts "$log" || status=${PIPESTATUS[0]}
# Who is interrupted or ended by a signal is not asked again.
[ "$status" -ne 0 ] && [ "$status" -lt 128 ] || exit "$status"
printf '%s failed: once more\n' "$name" >&2
"$@"
printf 'flaky: %s: it failed once and then passed; what it printed: %s\n' "$name" "$flaky"
{
    printf '== %s\n' "$name"
    cat "$log"
} >>"$flaky"
