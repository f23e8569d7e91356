#!/usr/bin/env bash
# Builds the container image from the release programs and nft of Debian 13, and writes it as
# an OCI archive.
#
#   install/image/build.sh              for this machine's processor, target/tweed-image.tar
#                                       (`make image`)
#   install/image/build.sh ARCH...      for these, target/tweed-image-ARCH….tar; more than one
#                                       have an index (`make image ARCH='amd64 arm64'`)
#   install/image/build.sh --check ...  build it twice elsewhere, and fail if the digests
#                                       differ
#   install/image/build.sh --output FILE --name NAME ...
#                                       write that archive, and NAME in place of
#                                       localhost/tweed
#   install/image/build.sh --packages ARCH
#                                       build nothing, and print the Debian packages that are
#                                       in the image, and their versions
#
# BUILDER=podman uses podman instead of buildah; the digest then differs. Root
# is needed: files in the image belong to root. All state is in a folder of its
# own in target while it runs; no registry is used, and no container is started.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
target=$("$root/.cargo/target-folder")
builder=${BUILDER:-buildah}
version=$(sed -nE 's/^version = "(.*)"$/\1/p' "$root/Cargo.toml" | head -n 1)
repository=$(sed -nE 's/^repository = "(.*)"$/\1/p' "$root/Cargo.toml" | head -n 1)
name=localhost/tweed:$version
own=$(dpkg --print-architecture)

PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

say() { printf 'image: %s\n' "$*"; }
fail() {
    printf 'image: %s\n' "$*" >&2
    exit 1
}

# of_architecture ARCH: where the programs for it are, and a folder in which nft and its
# libraries have the names that they get in the image.
of_architecture() {
    arch=$1
    release=$("$root/.cargo/cargo-for" "$arch" --release-folder)
    system=$target/tools/image-nft/$arch
    [ -d "$system" ] || fail "nft for $arch is missing: run conformance/setup.sh image $arch"
}

check_needs() {
    local program
    [ "$(id -u)" -eq 0 ] || fail "run it as root: the image's files belong to root"
    command -v "$builder" >/dev/null || fail "$builder is missing: run conformance/setup.sh image, which installs buildah"
    for arch in "$@"; do
        of_architecture "$arch"
        for program in tweed tweed-ipam tweed-agent tweed-install tweedctl; do
            [ -x "$release/$program" ] || fail "$release/$program is missing: run make build ARCH=$arch"
        done
    done
}

# nft, and every file that its loader opens for it, each under the name by which
# it is asked for.
nft_files() {
    printf '%s\n' /usr/sbin/nft
    libraries_of "$system" /usr/sbin/nft | sed -nE 's/^[^/]*(\/[^ ]+)( => [^ ]+)? \(0x[0-9a-f]+\)$/\1/p'
}

# libraries_of SYSTEM PROGRAM: as ldd prints them, for a program in such a folder.
libraries_of() {
    local loader
    loader=$(readelf --program-headers "$1$2" | sed -nE 's/.*interpreter: (.*)\]$/\1/p')
    if [ "$arch" = "$own" ]; then
        chroot "$1" "$loader" --list "$2"
        return
    fi
    "$target/tools/cross/$arch/bin/emulator" -L "$1" "$1$loader" --list "$1$2"
}

# packages: the Debian packages of nft's files and their versions, for `of_architecture`.
packages() {
    local package log=""
    # Packages that are only unpacked are in no list. A rebuilt one has its version in the
    # changelog of the architecture.
    for package in "$system"/usr/share/doc/*/; do
        for log in "$package/changelog.Debian.$arch.gz" "$package/changelog.Debian.gz" "$package/changelog.gz"; do
            [ -f "$log" ] && break
        done
        [ -f "$log" ] || fail "${package%/} has no changelog: its version is not known"
        printf '%s %s\n' "$(basename "$package")" "$(zcat "$log" | sed -nE '1 s/^[^ ]+ \(([^)]+)\).*/\1/p')"
    done
}

# Fills $1 with the content of the image. Modes are set explicitly, so that the
# caller's umask has no effect.
lay_out() {
    local rootfs=$1 file package
    install -d -m 755 "$rootfs/usr/share/doc/tweed"
    install -D -m 755 -t "$rootfs/usr/bin" "$release/tweed-agent" "$release/tweed-install" "$release/tweedctl"
    install -D -m 755 -t "$rootfs/opt/tweed/bin" "$release/tweed" "$release/tweed-ipam"
    # The checksums that tweed-install compares with.
    (cd "$rootfs/opt/tweed/bin" && sha256sum tweed tweed-ipam >SHA256SUMS && chmod 644 SHA256SUMS)
    install -m 644 "$root/LICENSE" "$rootfs/usr/share/doc/tweed/LICENSE"
    while read -r file; do
        install -D -m 755 "$system$file" "$rootfs$file"
    done < <(nft_files)
    # There is no list of what belongs to which package. That folder has nothing but nft and
    # what it depends on.
    for package in "$system"/usr/share/doc/*/; do
        add_licence "$rootfs" "$(basename "$package")"
    done
    find "$rootfs" -type d -exec chmod 755 {} +
    check_nft "$rootfs"
}

add_licence() {
    install -D -m 644 "$system/usr/share/doc/$2/copyright" "$1/usr/share/doc/$2/copyright"
}

# nft has to run with nothing but this folder. An emulator has no netfilter sockets, without
# which nft does not even print its version: there its loader has to find all libraries.
check_nft() {
    local found
    if [ "$arch" = "$own" ]; then
        chroot "$1" /usr/sbin/nft --version >/dev/null || fail "nft does not run in the image"
        return
    fi
    found=$(libraries_of "$1" /usr/sbin/nft) || fail "nft does not start in the image for $arch"
    [[ $found != *"not found"* ]] || fail "nft lacks libraries in the image for $arch: $found"
}

# with_own_var_lib FOLDER COMMAND...: the command sees the folder as /var/lib,
# where builders keep a cache whose place no flag changes.
with_own_var_lib() {
    mkdir -p "$1"
    # shellcheck disable=SC2016  # expanded inside
    unshare --mount --propagation private \
        sh -c 'mount --bind "$1" /var/lib && shift && exec "$@"' sh "$@"
}

# build STATE ARCHIVE ARCH...: builds with all state below that folder.
build() {
    local state=$1 archive=$2 variant kind=() push=(push)
    shift 2
    local store=(with_own_var_lib "$state/lib"
        "$builder" --root "$state/storage" --runroot "$state/run" --storage-driver vfs)
    [ "$builder" != podman ] || store+=(--tmpdir "$state/libpod")
    kind=(--tag "$name")
    if [ $# -gt 1 ]; then
        kind=(--manifest "$name") push=(manifest push --all)
    fi
    for arch in "$@"; do
        of_architecture "$arch"
        lay_out "$state/context/$arch/rootfs"
        variant=
        [ "$arch" != arm64 ] || variant=/v8
        # All times are 0: the digest depends on the contents only.
        "${store[@]}" build --quiet --isolation chroot --timestamp 0 --pull=never --identity-label=false \
            --platform "linux/$arch$variant" --build-arg "VERSION=$version" --build-arg "SOURCE=$repository" "${kind[@]}" \
            --file "$root/install/image/Containerfile" "$state/context/$arch" >/dev/null
    done
    rm -f "$archive.new"
    "${store[@]}" "${push[@]}" --quiet "$name" "oci-archive:$archive.new:$name"
    mv "$archive.new" "$archive"
}

digest_of() {
    tar -xOf "$1" index.json | sed -nE 's/.*"digest":"(sha256:[0-9a-f]{64})".*/\1/p'
}

main() {
    local check="" archive="" first second
    while [[ ${1:-} == -* ]]; do
        case $1:$# in
        --check:*) check=1 ;;
        --output:[2-9]*) archive=$2 && shift ;;
        --name:[2-9]*) name=$2:$version && shift ;;
        --packages:2)
            of_architecture "$2"
            packages
            return
            ;;
        *) fail "usage: $0 [--check] [--output FILE] [--name NAME] [ARCH...], or $0 --packages ARCH" ;;
        esac
        shift
    done
    if [ $# -eq 0 ]; then
        archive=${archive:-$target/tweed-image.tar}
        set -- "$own"
    fi
    archive=${archive:-$target/tweed-image$(printf -- '-%s' "$@").tar}
    check_needs "$@"
    work=$(mktemp -d "$target/image.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    if [ -n "$check" ]; then
        build "$work/1" "$work/1.tar" "$@"
        build "$work/2" "$work/2.tar" "$@"
        first=$(digest_of "$work/1.tar")
        second=$(digest_of "$work/2.tar")
        [ "$first" = "$second" ] || fail "not reproducible: first it is $first, then $second"
        say "built twice, it is the same: $first"
        return
    fi
    build "$work" "$archive" "$@"
    say "$name for $*, $(digest_of "$archive")"
    say "$(du -bs "$work/context" | cut -f 1) bytes of files, $(stat -c %s "$archive") bytes in ${archive#"$root"/}"
}

main "$@"
