#!/usr/bin/env bash
# Builds the container image from the programs in target/release and this
# machine's nft, and writes it as an OCI archive to target/tweed-image.tar.
#
#   install/image/build.sh           build it (`make image`)
#   install/image/build.sh --check   build it twice elsewhere, and fail if the
#                                    digests differ
#
# BUILDER=podman uses podman instead of buildah; the digest then differs. Root
# is needed: files in the image belong to root. All state is in a folder of its
# own in target while it runs; no registry is used, and no container is started.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
release=$root/target/release
builder=${BUILDER:-buildah}
version=$(sed -nE 's/^version = "(.*)"$/\1/p' "$root/Cargo.toml" | head -n 1)
name=localhost/tweed:$version

PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

say() { printf 'image: %s\n' "$*"; }
fail() {
    printf 'image: %s\n' "$*" >&2
    exit 1
}

check_needs() {
    local program
    [ "$(id -u)" -eq 0 ] || fail "run it as root: the image's files belong to root"
    command -v "$builder" >/dev/null || fail "$builder is missing: run conformance/setup.sh image, which installs buildah"
    command -v nft >/dev/null || fail "nft is missing: run conformance/setup.sh"
    for program in tweed tweed-ipam tweed-agent tweed-install; do
        [ -x "$release/$program" ] || fail "target/release/$program is missing: run make build"
    done
}

# nft, and every file that its loader opens for it, each under the name by which
# it is asked for.
nft_files() {
    local nft
    nft=$(command -v nft)
    printf '%s\n' "$nft"
    ldd "$nft" | sed -nE 's/^[^/]*(\/[^ ]+) \(0x[0-9a-f]+\)$/\1/p'
}

# The Debian package of a file. On a merged /usr a library is listed by either name, and
# one that a package diverts has lines about that.
package_of() {
    local file=$1
    for file in "$file" "$(readlink -f "$file")" "/usr$file" "${file#/usr}"; do
        dpkg-query -S "$file" 2>/dev/null || true
    done | grep -v '^diversion ' | head -n 1 | cut -d: -f1
}

# Fills $1 with the content of the image. Modes are set explicitly, so that the
# caller's umask has no effect.
lay_out() {
    local rootfs=$1 file package
    install -d -m 755 "$rootfs/usr/share/doc/tweed"
    install -D -m 755 -t "$rootfs/usr/bin" "$release/tweed-agent" "$release/tweed-install"
    install -D -m 755 -t "$rootfs/opt/tweed/bin" "$release/tweed" "$release/tweed-ipam"
    # The checksums that tweed-install compares with.
    (cd "$rootfs/opt/tweed/bin" && sha256sum tweed tweed-ipam >SHA256SUMS && chmod 644 SHA256SUMS)
    install -m 644 "$root/LICENSE" "$rootfs/usr/share/doc/tweed/LICENSE"
    while read -r file; do
        install -D -m 755 "$file" "$rootfs$file"
        package=$(package_of "$file") || true
        [ -n "$package" ] || fail "$file is of no Debian package: its licence is not known"
        install -D -m 644 "/usr/share/doc/$package/copyright" "$rootfs/usr/share/doc/$package/copyright"
    done < <(nft_files)
    find "$rootfs" -type d -exec chmod 755 {} +
    # It has to run with nothing but this folder.
    chroot "$rootfs" /usr/sbin/nft --version >/dev/null || fail "nft does not run in the image"
}

# with_own_var_lib FOLDER COMMAND...: the command sees the folder as /var/lib,
# where builders keep a cache whose place no flag changes.
with_own_var_lib() {
    mkdir -p "$1"
    # shellcheck disable=SC2016  # expanded inside
    unshare --mount --propagation private \
        sh -c 'mount --bind "$1" /var/lib && shift && exec "$@"' sh "$@"
}

# Builds with all state below $1, into the archive $2.
build() {
    local state=$1 archive=$2
    local store=(with_own_var_lib "$state/lib"
        "$builder" --root "$state/storage" --runroot "$state/run" --storage-driver vfs)
    [ "$builder" != podman ] || store+=(--tmpdir "$state/libpod")
    lay_out "$state/context/rootfs"
    # All times are 0: the digest depends on the contents only.
    "${store[@]}" build --quiet --isolation chroot --timestamp 0 --pull=never --identity-label=false \
        --build-arg "VERSION=$version" --tag "$name" \
        --file "$root/install/image/Containerfile" "$state/context" >/dev/null
    rm -f "$archive.new"
    "${store[@]}" push --quiet "$name" "oci-archive:$archive.new:$name"
    mv "$archive.new" "$archive"
}

digest_of() {
    tar -xOf "$1" index.json | sed -nE 's/.*"digest":"(sha256:[0-9a-f]{64})".*/\1/p'
}

main() {
    local archive=$root/target/tweed-image.tar first second
    check_needs
    work=$(mktemp -d "$root/target/image.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    case ${1:-} in
    '')
        build "$work" "$archive"
        say "$name, $(digest_of "$archive")"
        say "$(du -bs "$work/context/rootfs" | cut -f 1) bytes of files, $(stat -c %s "$archive") bytes in target/tweed-image.tar"
        ;;
    --check)
        build "$work/1" "$work/1.tar"
        build "$work/2" "$work/2.tar"
        first=$(digest_of "$work/1.tar")
        second=$(digest_of "$work/2.tar")
        [ "$first" = "$second" ] || fail "not reproducible: first it is $first, then $second"
        say "built twice, it is the same: $first"
        ;;
    *) fail "usage: $0 [--check]" ;;
    esac
}

main "$@"
