#!/usr/bin/env bash
# Prints the bill of materials of a release in CycloneDX JSON: the crates that are linked into
# its programs, and the Debian packages in its image.
#
#   install/release/sbom.sh ARCH...
#
# A plugin of cargo is not used: those tried name folders of this machine, and crates that only
# the tests enable.
set -euo pipefail
shopt -s inherit_errexit

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# The packages with the programs that are shipped.
programs=(tweed-agent tweed-ctl tweed-cni-plugin tweed-install tweed-ipam)

# linked ARCH: name and version of each crate in the programs for it.
linked() {
    cargo tree --quiet --locked --edges normal,no-proc-macro --prefix none --format '{p}' \
        --target "$("$root/.cargo/cargo-for" "$1" --triple)" "${programs[@]/#/--package=}" |
        sed -nE 's/^([^ ]+) v([^ ]+).*/\1 \2/p'
}

metadata() {
    cargo metadata --quiet --locked --format-version 1 \
        --filter-platform "$("$root/.cargo/cargo-for" "$1" --triple)"
}

main() {
    local arch work commit time distribution
    [ $# -gt 0 ] || {
        echo "usage: $0 ARCH..." >&2
        exit 2
    }
    cd "$root"
    work=$(mktemp -d)
    # shellcheck disable=SC2064  # the folder of now
    trap "rm -rf '$work'" EXIT
    for arch in "$@"; do
        linked "$arch"
    done | sort --unique >"$work/linked"
    for arch in "$@"; do
        metadata "$arch" >>"$work/metadata"
        install/image/build.sh --packages "$arch" | sed "s/^/$arch /" >>"$work/debian"
    done
    commit=$(git rev-parse HEAD)
    time=$(date --utc --date="@$(git log -1 --format=%ct)" +%Y-%m-%dT%H:%M:%SZ)
    # shellcheck source=/dev/null
    distribution=$(. /etc/os-release && echo "$VERSION_CODENAME")
    jq --null-input --from-file install/release/sbom.jq \
        --slurpfile metadata "$work/metadata" --rawfile linked "$work/linked" \
        --rawfile debian "$work/debian" --rawfile lock Cargo.lock \
        --arg hash "$({ echo "$commit" && cat "$work/linked" "$work/debian"; } | sha256sum | cut -d ' ' -f 1)" \
        --arg version "$(value_of version)" --arg repository "$(value_of repository)" \
        --arg commit "$commit" --arg time "$time" --arg distribution "$distribution" \
        --arg programs "${programs[*]}"
}

# value_of KEY: of the whole workspace.
value_of() {
    sed -nE "s/^$1 = \"(.*)\"$/\1/p" Cargo.toml | head -n 1
}

main "$@"
