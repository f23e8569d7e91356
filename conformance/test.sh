#!/usr/bin/env bash
# Runs the tests of the workspace by cargo-nextest; `make test` calls it.
#
#   conformance/test.sh [--config CONFIG] [ARGUMENTS…]
#
# CONFIG is one for cargo. With further arguments of `cargo nextest run` only those tests run
# that they choose, without the judges of Services.
#
# A test that fails runs once more. What passes then is flaky: it is named in the last lines,
# the output of its failed try goes to target/flaky.txt, and the run succeeds. What fails
# twice, or hangs twice until its time limit, fails the run. `make e2e` and the demo add what
# they had to repeat to the same file.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
target=$("$root/.cargo/target-folder")
flaky=$target/flaky.txt
nextest=$target/tools/bin/cargo-nextest
config=()
passed=0 failed=0 left_out=0

# Most tests wait for a kernel or for other programs three quarters of their time, so three for
# each processor run at a time. Each counts as two, and as one where it hardly does anything else
# (.config/nextest.toml).
export NEXTEST_TEST_THREADS=${NEXTEST_TEST_THREADS:-$((6 * $(nproc)))}

# run PROFILE ARGUMENTS…: runs the tests that the arguments choose. Those that fail are no error.
run() {
    local profile=$1 status=0
    shift
    rm -f "$target/nextest/$profile/junit.xml"
    { "$nextest" nextest run "${config[@]}" --workspace --tests --profile "$profile" "$@" 2>&1 || status=$?
        # For the caller of the pipe.
        echo "$status" >"$scratch/$profile.status"
    } | tee "$scratch/$profile.log"
    status=$(cat "$scratch/$profile.status")
    # 100: tests have failed. With any other error not all of them have run.
    [ "$status" -eq 0 ] || [ "$status" -eq 100 ] || return "$status"
}

# count PROFILE: counts what has run.
count() {
    local report=$target/nextest/$1/junit.xml ran broken
    read -r ran broken < <(sed -nE \
        's/^<testsuites .* tests="([0-9]+)" .*failures="([0-9]+)" errors="([0-9]+)".*/\1 \2+\3/p' "$report")
    failed=$((failed + broken))
    passed=$((passed + ran - (broken)))
    awk -f conformance/flaky.awk "$report" >>"$flaky"
}

main() {
    cd "$root"
    if ! "$nextest" nextest --version >/dev/null 2>&1; then
        echo "test.sh: cargo-nextest is missing: run conformance/setup.sh test" >&2
        exit 1
    fi
    if [ "${1:-}" = --config ]; then
        config=("$1" "$2")
        shift 2
    fi
    mkdir -p "$target"
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    # `make e2e` may have made it as root.
    rm -f "$flaky"
    : >"$flaky"
    local judges='' first
    if [ $# -eq 0 ]; then
        # Ignored elsewhere, because they need what `setup.sh test` builds. Both runs wait for
        # kernels and programs most of the time, so they wait together.
        run judges --run-ignored only -E 'binary(reference)' >"$scratch/judges" 2>&1 &
        judges=$!
    fi
    run default "$@"
    count default
    # The report does not count the tests that were left out; the summary does.
    left_out=$(sed -nE 's/.* Summary .* ([0-9]+) skipped.*/\1/p' "$scratch/default.log")
    if [ -n "$judges" ]; then
        first=$((passed + failed))
        wait "$judges" || { cat "$scratch/judges" && exit 1; }
        cat "$scratch/judges"
        count judges
        left_out=$((left_out - (passed + failed - first)))
    fi
    sed -n 's/^== /flaky: /p' "$flaky"
    [ ! -s "$flaky" ] || printf 'the output of what failed once and then passed: %s\n' "$flaky"
    printf '%s passed, %s failed, %s skipped\n' "$passed" "$failed" "${left_out:-0}"
    [ "$failed" -eq 0 ]
}

# On one line: bash reads a script while it runs it, and this file may be edited meanwhile.
main "$@"; exit
