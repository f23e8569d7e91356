# Rust and its tools. Sourced by setup.sh.

deny_version=0.20.2
fuzz_version=0.13.2

check_rust() {
    command -v cargo >/dev/null || fail "cargo is missing: install Rust first"
    local component
    for component in fmt clippy; do
        cargo "$component" --version >/dev/null 2>&1 ||
            fail "cargo $component is missing: run 'rustup component add rustfmt clippy'"
    done
}

install_deny() {
    if [ "$("$tools/bin/cargo-deny" --version 2>/dev/null)" = "cargo-deny $deny_version" ]; then
        return
    fi
    say "building cargo-deny $deny_version into target/tools/bin (licenses, sources and double versions of dependencies; about a minute)"
    # Without optimisation: it then takes a third of the time to build, and a check takes
    # 2 seconds instead of 1.
    CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=256 \
        cargo install --quiet --locked --no-default-features --root "$tools" "cargo-deny@$deny_version"
}

install_fuzz() {
    if [ "$("$tools/bin/cargo-fuzz" --version 2>/dev/null)" = "cargo-fuzz $fuzz_version" ]; then
        return
    fi
    say "building cargo-fuzz $fuzz_version into target/tools/bin (about a minute)"
    CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=256 \
        cargo install --quiet --locked --root "$tools" "cargo-fuzz@$fuzz_version"
}
