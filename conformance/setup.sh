#!/usr/bin/env bash
# Installs what the lab, the tests and the checks need, and only what is missing.
#
#   conformance/setup.sh        for `make demo` and `make test`
#   conformance/setup.sh deny   for `make deny`
#
# Debian packages go to the system, by apt-get, with sudo where the caller is not
# root. Everything else goes to target/tools in this folder; Go and cargo keep
# their usual download caches. Running it again changes nothing and takes no time.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
tools=$root/target/tools
module=$root/conformance/tools
deny_version=0.20.2

say() { printf 'setup: %s\n' "$*"; }
fail() {
    printf 'setup: %s\n' "$*" >&2
    exit 1
}

# Programs in the system's folders are not in every user's PATH.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        fail "needs root for: $*; run it as root or install sudo"
    fi
}

# Each line: a program that must be there, the package that has it, what for.
programs() {
    cat <<'LIST'
ip        iproute2      namespaces, links and routes of the lab
bridge    iproute2      the forwarding entries of a VXLAN device
nft       nftables      the node's rules and the lab's switch
ping      iputils-ping  the probes
tcpdump   tcpdump       captures in tests
ethtool   ethtool       device features in tests
conntrack conntrack     what a node translates
iptables  iptables      the reference plugins portmap and firewall
cc        gcc           linking Rust programs
LIST
}

install_packages() {
    local program package why missing=()
    while read -r program package why; do
        command -v "$program" >/dev/null && continue
        say "missing $program: installing $package ($why)"
        missing+=("$package")
    done < <(programs)
    # Static programs need the C library's archive too; gcc only recommends it.
    if ! command -v cc >/dev/null || [ "$(cc -print-file-name=libc.a)" = libc.a ]; then
        say "missing libc.a: installing libc6-dev (static programs)"
        missing+=(libc6-dev)
    fi
    apt_install "${missing[@]}"
}

apt_install() {
    [ $# -gt 0 ] || return 0
    command -v apt-get >/dev/null || fail "no apt-get here; install by hand: $*"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

check_rust() {
    command -v cargo >/dev/null || fail "cargo is missing: install Rust first"
    local component
    for component in fmt clippy; do
        cargo "$component" --version >/dev/null 2>&1 ||
            fail "cargo $component is missing: run 'rustup component add rustfmt clippy'"
    done
}

# Sets `go` to a Go that can build the tools' module. From 1.21 on, Go fetches a
# newer toolchain by itself if go.mod asks for it. An older one (Debian 12 has
# 1.19) can still download that toolchain, which is a module, but not switch to it.
find_go() {
    # Go keeps counters of itself in the user's config folder: not for this.
    export GOENV=${GOENV:-${XDG_CONFIG_HOME:-$HOME/.config}/go/env}
    export XDG_CONFIG_HOME=$tools/config
    go=$(command -v go || true)
    if [ -z "$go" ]; then
        say "missing go: installing golang-go (builds cnitool and the reference plugins)"
        apt_install golang-go
        go=$(command -v go) || fail "golang-go is installed, but go is not in PATH"
    fi
    local minor
    minor=$(GOTOOLCHAIN=local "$go" env GOVERSION | sed -nE 's/^go1\.([0-9]+).*/\1/p')
    if [ "${minor:-0}" -ge 21 ]; then
        export GOTOOLCHAIN=auto
        return
    fi
    local wanted arch json folder
    wanted=$(sed -nE 's/^go ([0-9.]+)$/\1/p' "$module/go.mod")
    arch=$("$go" env GOARCH)
    say "$("$go" version) is too old: fetching the toolchain module of go$wanted"
    # Outside of the module: an old Go cannot read its go.mod.
    json=$(cd / && "$go" mod download -json "golang.org/toolchain@v0.0.1-go$wanted.linux-$arch") ||
        fail "could not download the toolchain: $json"
    folder=$(printf '%s\n' "$json" | sed -nE 's/^[[:space:]]*"Dir": "(.*)",?$/\1/p')
    [ -d "$folder" ] || fail "the toolchain module is not where Go says: '$folder'"
    # Modules carry no permissions; a newer Go sets these bits in the same way.
    chmod -R u+w "$folder"
    chmod 755 "$folder"/bin/* "$folder"/pkg/tool/*/*
    export GOROOT=$folder GOTOOLCHAIN=local
    go=$folder/bin/go
}

build_go_tools() {
    local stamp=$tools/go.stamp state
    state=$(sha256sum <"$module/go.mod"; sha256sum <"$module/go.sum")
    if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$state" ]; then
        return
    fi
    find_go
    say "building cnitool and the reference CNI plugins into target/tools/bin (versions: conformance/tools/go.mod)"
    mkdir -p "$tools/bin"
    (
        cd "$module"
        GOBIN=$tools/bin GOFLAGS=-mod=readonly CGO_ENABLED=0 "$go" install -trimpath -ldflags '-s -w' tool
    ) || fail "could not build the tools of conformance/tools/go.mod"
    printf '%s\n' "$state" >"$stamp"
}

install_deny() {
    if [ "$("$tools/bin/cargo-deny" --version 2>/dev/null)" = "cargo-deny $deny_version" ]; then
        return
    fi
    say "building cargo-deny $deny_version into target/tools/bin (licenses, sources and double versions of dependencies; some minutes)"
    cargo install --quiet --locked --no-default-features --root "$tools" "cargo-deny@$deny_version"
}

case ${1:-lab} in
lab)
    install_packages
    check_rust
    build_go_tools
    ;;
deny)
    check_rust
    install_deny
    ;;
*) fail "usage: $0 [lab|deny]" ;;
esac
