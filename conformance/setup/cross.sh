# Compiling and running programs for another processor. Sourced by setup.sh.
#
# Nothing is installed: the C compiler, the emulator and the files of the other architecture
# are unpacked into a folder of their own. Rust's own library for it comes by rustup.

cross=$tools/cross

# of_architecture ARCH: sets the names of an architecture. ARCH is Debian's name of it, which
# is also that of Go and of container images; without one it is this machine's.
of_architecture() {
    own_architecture=$(dpkg --print-architecture 2>/dev/null) || fail "this is no Debian: it has no dpkg"
    architecture=${1:-$own_architecture}
    rust_triple=$("$root/.cargo/cargo-for" "$architecture" --triple) || exit 1
    # As Debian names files and packages.
    triple=${rust_triple/-unknown/}
}

# build_cross ARCH: what compiles programs for it and runs them. Nothing for this machine's
# own.
build_cross() {
    of_architecture "$1"
    [ "$architecture" != "$own_architecture" ] || return 0
    add_rust_target
    local step=cross-$architecture inputs folder=$cross/$architecture
    inputs=$(hash_of "$conformance/setup/cross.sh")
    if done_before "$step" "$inputs" "$folder"/bin/{cc,emulator}; then
        return
    fi
    say "unpacking a C compiler and an emulator for $architecture into ${tools#"$root"/}/cross/$architecture (half a minute, 300 MB)"
    rm -rf "$folder"/{bin,host}
    unpack_tree "$folder/host" "gcc-${triple//_/-}" "libc6-dev-$architecture-cross"
    unpack_packages "$folder/host" qemu-user-static
    find "$folder/host/usr/bin" -name 'qemu-*' ! -name "qemu-${triple%%-*}-static" -delete
    write_cross_programs "$folder"
    mark_done "$step" "$inputs"
}

add_rust_target() {
    if [ -d "$(rustc --print target-libdir --target "$rust_triple")" ]; then
        return
    fi
    command -v rustup >/dev/null ||
        fail "Rust's library for $rust_triple is missing, and there is no rustup that adds it"
    say "adding Rust's library for $rust_triple to the toolchain (rustup target add)"
    rustup --quiet target add "$rust_triple"
}

# The programs under the names that `.cargo/cargo-for` knows.
write_cross_programs() {
    local folder=$1 program name
    mkdir -p "$folder/bin"
    # The compiler needs libraries that it brings. With them came the C library, which does
    # not go with the loader of another version.
    rm -f "$folder/host/usr/lib/$(own_triple)"/lib{c,m,mvec,dl,pthread,rt}.so.*
    for name in cc ar strip; do
        program=$folder/host/usr/bin/$triple-${name/cc/gcc}
        printf '#!/bin/sh\nLD_LIBRARY_PATH=%q exec %q "$@"\n' \
            "$folder/host/usr/lib/$(own_triple)" "$program" >"$folder/bin/$name"
        chmod +x "$folder/bin/$name"
    done
    ln -s "../host/usr/bin/qemu-${triple%%-*}-static" "$folder/bin/emulator"
}

own_triple() {
    local own
    own=$("$root/.cargo/cargo-for" "$own_architecture" --triple)
    echo "${own/-unknown/}"
}

# unpack_tree_of ARCH FOLDER PACKAGE...: as `unpack_tree`, for that processor, from this
# machine's own release of Debian.
unpack_tree_of() {
    local wanted=$1 folder=$2 release
    shift 2
    if [ "$wanted" = "$own_architecture" ]; then
        unpack_tree "$folder" "$@"
        return
    fi
    # shellcheck source=/dev/null
    release=$(. /etc/os-release && echo "$VERSION_CODENAME")
    from_releases "$wanted" "$release" "$release-security"
    unpack_tree "$folder" "${release_options[@]}" "$@"
}

# The reference plugins and cnitool, where the lab of that processor looks for them.
build_cross_tools() {
    of_architecture "$1"
    [ "$architecture" != "$own_architecture" ] || return 0
    local module=$conformance/tools step=go-tools-$architecture inputs folder=$cross/$architecture/tools
    inputs=$(hash_of "$module/go.mod" "$module/go.sum")
    if done_before "$step" "$inputs" "$folder/cnitool"; then
        return
    fi
    find_go
    say "building cnitool and the reference CNI plugins for $architecture into ${tools#"$root"/}/cross/$architecture/tools"
    mkdir -p "$folder"
    GOARCH=$architecture run_go "$module" build "${build_flags[@]}" -ldflags '-s -w' -o "$folder/" tool
    mark_done "$step" "$inputs"
}
