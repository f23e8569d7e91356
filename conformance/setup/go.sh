# Go, and programs from pinned Go modules. Sourced by setup.sh.

# Sets `go` to a Go that can build all modules here. Since version 1.21, Go fetches a newer
# toolchain by itself if go.mod requires it. An older one (Debian 12 has 1.19) can download
# that toolchain, which is a module, but cannot switch to it.
find_go() {
    [ -z "${go:-}" ] || return 0
    # Go writes telemetry counters to the user's config folder, which this must not change.
    export GOENV=${GOENV:-${XDG_CONFIG_HOME:-$HOME/.config}/go/env}
    export XDG_CONFIG_HOME=$tools/config
    go=$(command -v go || true)
    if [ -z "$go" ]; then
        say "missing go: installing golang-go (builds cnitool, the reference plugins, Kubernetes)"
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
    # The newest version that any module requires, so that one toolchain is enough.
    wanted=$(find "$conformance" -name go.mod -exec sed -nE 's/^go ([0-9.]+)$/\1/p' {} + |
        sort --version-sort | tail -n 1)
    arch=$("$go" env GOARCH)
    say "$("$go" version) is too old: fetching the toolchain module of go$wanted"
    # Outside the module, because an old Go cannot read its go.mod.
    json=$(cd / && "$go" mod download -json "golang.org/toolchain@v0.0.1-go$wanted.linux-$arch") ||
        fail "could not download the toolchain: $json"
    folder=$(printf '%s\n' "$json" | sed -nE 's/^[[:space:]]*"Dir": "(.*)",?$/\1/p')
    [ -d "$folder" ] || fail "the toolchain module is not where Go says: '$folder'"
    # Modules have no permission bits; a newer Go sets them in the same way.
    chmod -R u+w "$folder"
    chmod 755 "$folder"/bin/* "$folder"/pkg/tool/*/*
    export GOROOT=$folder GOTOOLCHAIN=local
    go=$folder/bin/go
}

# run_go FOLDER ARGUMENTS...: runs Go in the folder of a module, whose files it must not
# change. Its output is shown only if it fails, without the list of downloads. With cgo=1,
# packages in C are built too.
run_go() {
    local folder=$1 log
    shift
    scratch_folder
    log=$scratch/go.log
    (cd "$folder" && GOFLAGS=-mod=readonly CGO_ENABLED=${cgo:-0} "$go" "$@") >"$log" 2>&1 && return
    grep -v '^go: downloading ' "$log" | tail -n 30 >&2
    fail "'go $1' failed in ${folder#"$root"/} (its output is above; the first build needs the network, or a GOPROXY with the modules)"
}

# module_version FOLDER MODULE: the version that a go.mod pins, without the v.
module_version() {
    sed -nE "s,^(require)?[[:space:]]+$2 v([^ ]+).*,\2,p" "$1/go.mod" | head -n 1
}

# Flags of every build: no paths of this machine, no debug information, and no commit of
# this repository, which would change with every commit.
build_flags=(-trimpath -buildvcs=false)

# build_programs WHAT MINUTES FOLDER DESTINATION LINKER-FLAGS PROGRAM=PACKAGE...: builds
# programs of one Go module if they are missing or their inputs have changed. The minutes
# are the time of a first build on two processors.
#
# One call of Go builds them all, so that it links several programs at the same time.
build_programs() {
    local what=$1 minutes=$2 folder=$3 destination=$4 linker=$5 step inputs program sources built outputs=()
    shift 5
    step=go-$(basename "$folder")
    mapfile -t sources < <(find -L "$folder" -type f | sort)
    inputs="$(hash_of "${sources[@]}") $linker ${build_flags[*]} $*"
    for program in "$@"; do
        outputs+=("$destination/${program%%=*}")
    done
    if done_before "$step" "$inputs" "${outputs[@]}"; then
        return
    fi
    find_go
    say "building $what into ${destination#"$root"/}: up to $minutes min (version: ${folder#"$root"/}/go.mod)"
    mkdir -p "$destination"
    scratch_folder
    built=$(mktemp -d "$scratch/programs.XXXXXX")
    run_go "$folder" build "${build_flags[@]}" -ldflags "$linker" -o "$built/" "${@#*=}"
    for program in "$@"; do
        mv "$built/$(name_by_go "$folder" "${program#*=}")" "$destination/${program%%=*}"
    done
    mark_done "$step" "$inputs"
}

# name_by_go FOLDER PACKAGE: the name that Go gives to the program of a package: the last
# element of its path that is not a version.
name_by_go() {
    local path=$2
    [ "$path" != . ] || path=$1
    basename "${path%/v[0-9]}"
}

# build_tools STEP WHAT PACKAGE: builds a package of the module `tools`, or all that it names
# as tools.
build_tools() {
    local module=$conformance/tools step=$1 what=$2 package=$3 inputs
    inputs=$(hash_of "$module/go.mod" "$module/go.sum")
    if done_before "$step" "$inputs" "$tools/bin/cnitool"; then
        return
    fi
    find_go
    say "building $what into ${tools#"$root"/}/bin (versions: conformance/tools/go.mod)"
    mkdir -p "$tools/bin"
    GOBIN=$tools/bin run_go "$module" install "${build_flags[@]}" -ldflags '-s -w' "$package"
    mark_done "$step" "$inputs"
}
