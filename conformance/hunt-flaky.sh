#!/usr/bin/env bash
# Runs all tests while each processor is taken away for 80 ms at a time, 40 % of the time, and
# while a build runs beside. What is red or flaky then is a defect of a test or of the product.
#
#   conformance/hunt-flaky.sh ROUNDS [--config CONFIG]
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
rounds=$1
shift
target=$(.cargo/target-folder)
build=$target/flaky-build
all=$(mktemp)
helpers=()

# Of processes that this script started, each in a group of its own.
stop() {
    local pid
    for pid in "${helpers[@]}"; do
        kill -- "-$pid" 2>/dev/null || true
    done
    wait
    rm -rf "$build" "$all"
}
trap stop EXIT
trap 'exit 130' INT TERM

# Microseconds of work and of rest; the shell rests without starting a program.
# shellcheck disable=SC2016
take_processor='
    exec {rest}<> <(:)
    while :; do
        end=$((${EPOCHREALTIME/[.,]/} + 80000))
        while ((${EPOCHREALTIME/[.,]/} < end)); do :; done
        read -r -t 0.12 -u "$rest" || true
    done'
# shellcheck disable=SC2016
build_again='
    while :; do
        rm -rf "$1"
        cargo build --quiet --package tweed-agent --target-dir "$1" || sleep 10
    done'

# What cannot have real-time priority would take nothing away.
chrt --fifo 50 true || {
    echo "hunt-flaky.sh: needs the right to set real-time priorities (root)" >&2
    exit 1
}
set -m
for ((cpu = 0; cpu < $(nproc); cpu++)); do
    taskset --cpu-list "$cpu" chrt --fifo 50 bash -c "$take_processor" &
    helpers+=($!)
done
bash -c "$build_again" _ "$build" >/dev/null 2>&1 &
helpers+=($!)
set +m

status=0
for ((round = 1; round <= rounds; round++)); do
    printf '=== round %s of %s\n' "$round" "$rounds"
    conformance/test.sh "$@" || status=1
    cat "$target/flaky.txt" >>"$all"
done
cp "$all" "$target/flaky.txt"
printf '=== all rounds\n'
sed -n 's/^== /flaky: /p' "$all" | sort | uniq -c
[ ! -s "$all" ] || status=1
exit "$status"
