#!/usr/bin/env bash
# Runs the targets of cargo-fuzz, one after the other. `make fuzz` installs cargo-fuzz
# before.
#
#   fuzz/run.sh run SECONDS [TARGET…]   each for so long
#   fuzz/run.sh minimise [TARGET…]      the smallest corpora that reach the same code
#
# New inputs that reach more code are kept in target/fuzz/corpus/TARGET, beside those of
# fuzz/corpus/TARGET. `minimise` adds to these what reaches more code than they do; what
# has a name there, real messages and inputs that broke a law once, always stays. An input
# that breaks a law is left in target/fuzz/found/TARGET.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# The sanitizers and the coverage are options of nightly compilers. With this the stable
# one takes them too, so that no other toolchain is needed than that of the product.
export RUSTC_BOOTSTRAP=1
# Static programs, which .cargo/rustc-static makes, cannot have an address sanitizer.
export CARGO_BUILD_RUSTC_WORKSPACE_WRAPPER=
# Built for the first time in about 10 minutes of processor time, most of it for others'
# crates; traces have names.
export CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_LTO=off
export CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_STRIP=none
folder=$(.cargo/target-folder)/fuzz
PATH=${folder%/fuzz}/tools/bin:$PATH

# Most seconds, and MiB in all and at once, that an input may need, and its most bytes.
limits=(-timeout=5 -rss_limit_mb=1024 -malloc_limit_mb=64 -max_len=16384)

usage() {
    echo "usage: $0 run SECONDS [TARGET…] | minimise [TARGET…]" >&2
    exit 2
}

case ${1:-} in
run)
    seconds=${2:-}
    [[ $seconds =~ ^[1-9][0-9]*$ ]] || usage
    shift 2
    ;;
minimise) shift ;;
*) usage ;;
esac
targets=("$@")
for target in "${targets[@]}"; do
    [ -f "fuzz/fuzz_targets/$target.rs" ] || {
        echo "fuzz: there is no target $target; there are $(cd fuzz/fuzz_targets && echo *.rs | sed 's/\.rs//g')" >&2
        exit 2
    }
done
if [ ${#targets[@]} -eq 0 ]; then
    mapfile -t targets < <(find fuzz/fuzz_targets -name '*.rs' -printf '%f\n' | sed 's/\.rs$//' | sort)
fi

built=$folder/build
cargo fuzz build --codegen-units 16 --fuzz-dir fuzz --target-dir "$built" --features libfuzzer
programs=$built/$(rustc -vV | sed -n 's/^host: //p')/release

broken=() failed=()
for target in "${targets[@]}"; do
    committed=fuzz/corpus/$target
    corpus=$folder/corpus/$target
    found=$folder/found/$target
    mkdir -p "$corpus" "$found"
    echo "fuzz: $target"
    if [ -z "${seconds:-}" ]; then
        # What code is reached counts, not how often: half of the inputs then remain.
        new=$(mktemp -d "$folder/minimised.XXXXXX")
        # libFuzzer names an input by its SHA-1.
        find "$committed" -type f -regextype egrep ! -regex '.*/[0-9a-f]{40}' -exec cp -t "$new" {} +
        "$programs/$target" "${limits[@]}" -use_value_profile=0 -use_counters=0 -merge=1 "$new" "$committed" "$corpus"
        rm -f "$committed"/*
        mv "$new"/* "$committed"
        rmdir "$new"
    else
        begun=$(date +%s)
        if ! "$programs/$target" "${limits[@]}" -max_total_time="$seconds" -print_final_stats=1 \
            -artifact_prefix="$found/" "$corpus" "$committed"; then
            if [ -n "$(find "$found" -type f -newermt "@$begun")" ]; then
                broken+=("$target")
            else
                failed+=("$target")
            fi
        fi
    fi
done
[ ${#broken[@]} -eq 0 ] ||
    echo "fuzz: a law does not hold in: ${broken[*]}; the inputs are in $folder/found" >&2
[ ${#failed[@]} -eq 0 ] || echo "fuzz: could not be run: ${failed[*]}" >&2
[ ${#broken[@]} -eq 0 ] && [ ${#failed[@]} -eq 0 ]
