#!/usr/bin/env bash
# Writes all that a release page needs into one folder, from release programs that are built
# already (`make release VERSION=…` builds them before).
#
#   install/release.sh VERSION [ARCH...]           into target/release-VERSION; without ARCH for
#                                                  amd64 and arm64
#   install/release.sh --check VERSION [ARCH...]   makes it twice elsewhere, and fails where a
#                                                  file differs
#   install/release.sh --preflight VERSION         only says what is in the way, before anything
#                                                  is built
#
# OUT=DIR is another folder. IMAGE=registry.example/tweed is the name of the image, in its
# archives, in the manifests and in the chart, instead of localhost/tweed. SIGN_KEY=FILE signs
# the checksums by that SSH key, or by the one in an agent whose public half the file is.
#
# Everything but the programs is taken from the commit, and so are all times. The same commit,
# programs and tools result in the same bytes.
set -euo pipefail
shopt -s inherit_errexit extglob
umask 022

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
target=$("$root/.cargo/target-folder")
export CARGO_TARGET_DIR=$target
unset CDPATH GREP_OPTIONS
export LC_ALL=C TZ=UTC

programs=(tweed tweed-ipam tweed-agent tweed-install tweedctl)
# What the signature is for, so that one of another kind of file cannot stand in for it.
namespace=tweed-release

say() { printf 'release: %s\n' "$*"; }
fail() {
    printf 'release: %s\n' "$*" >&2
    exit 1
}

# value_of KEY: of the whole workspace.
value_of() {
    sed -nE "s/^$1 = \"(.*)\"$/\1/p" "$root/Cargo.toml" | head -n 1
}

check_version() {
    local is
    is=$(value_of version)
    [ "$version" != "$is" ] || return 0
    [ "$version" != "v$is" ] || fail "VERSION is $version: write it without the v"
    fail "VERSION is $version, but the workspace has $is: make it version = \"$version\" in line $(grep -n '^version = ' "$root/Cargo.toml" | head -n 1 | cut -d : -f 1) of Cargo.toml, and follow docs/development/releasing.md"
}

# A release is of a commit, so that it can be made again. An earlier one may be in the tree.
check_tree() {
    local changes aside=()
    git -C "$root" rev-parse --quiet --verify HEAD >/dev/null ||
        fail "this is no clone: a release is made of a commit"
    [[ $out != "$root"/* ]] || aside=(":(exclude,literal)${out#"$root"/}")
    changes=$(git -C "$root" status --porcelain -- . "${aside[@]}")
    [ -z "$changes" ] || fail "the tree has changes that are in no commit: commit them, or put them away (git stash --include-untracked):
$(head -n 5 <<<"$changes")"
}

check_programs() {
    local program missing=()
    for program in buildah git gzip jq sha256sum tar; do
        command -v "$program" >/dev/null || missing+=("$program")
    done
    [ -z "${SIGN_KEY:-}" ] || command -v ssh-keygen >/dev/null || missing+=("ssh-keygen (openssh-client)")
    [ ${#missing[@]} -eq 0 ] || fail "missing: ${missing[*]}; run conformance/setup.sh release"
}

# Programs of another commit would be shipped under the name of this one.
check_builds() {
    local arch folder program commit
    commit=${TWEED_COMMIT:-$(git -C "$root" rev-parse --short HEAD)}
    for arch in "$@"; do
        folder=$("$root/.cargo/cargo-for" "$arch" --release-folder)
        for program in "${programs[@]}"; do
            [ -x "$folder/$program" ] || fail "$folder/$program is missing: run make build ARCH=$arch"
            grep --quiet --text --fixed-strings "$version ($commit)" "$folder/$program" ||
                fail "$folder/$program is not $version of the commit $commit: run make build ARCH=$arch"
            check_sources "$folder/$program"
        done
    done
}

# One that was built of changes that were put away since has the name of the commit, too: git
# has written the files again after it was built.
check_sources() {
    local newer
    [ -f "$1.d" ] || return 0
    # As cargo lists them: `PROGRAM: FILE...`, with spaces as a shell has them.
    # shellcheck disable=SC2016  # expanded inside
    newer=$(sed 's/^[^:]*: //' "$1.d" | xargs sh -c 'program=$1 && shift && find "$@" -newer "$program"' sh "$1")
    [ -z "$newer" ] || fail "$1 is older than $(head -n 1 <<<"$newer"): run make build ARCH=$arch"
}

check_key() {
    [ -n "${SIGN_KEY:-}" ] || return 0
    [ -r "$SIGN_KEY" ] || fail "SIGN_KEY=$SIGN_KEY cannot be read: it is the file of an SSH key"
    ssh-keygen -l -f "$SIGN_KEY" >/dev/null 2>&1 || fail "SIGN_KEY=$SIGN_KEY is no SSH key: make one with ssh-keygen -t ed25519"
    [[ $(heading) != *unreleased* ]] ||
        fail "CHANGELOG.md calls $version unreleased: put the date there, commit, and sign then"
}

# An earlier release is replaced, but never a folder with anything else in it.
check_out() {
    local others
    [ -e "$out" ] || return 0
    [ -d "$out" ] || fail "$out is no folder"
    others=$(comm -13 <(
        printf '%s\n' SHA256SUMS SHA256SUMS.sig | cat - <(sed 's/^[^ ]* [ *]//' "$out/SHA256SUMS" 2>/dev/null) | sort
    ) <(find "$out" -mindepth 1 -printf '%P\n' | sort))
    # A mirror of something else may list all of its files, too.
    if [ -z "$others" ] && [ -n "$(ls -A "$out")" ]; then
        grep -q ' [ *]tweed.yaml$' "$out/SHA256SUMS" 2>/dev/null || others=SHA256SUMS
    fi
    [ -z "$others" ] || fail "$out has files that are not of a release, such as $(head -n 1 <<<"$others"): name another folder by OUT="
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

# pack FOLDER FILE NAME...: these parts of the folder, as an archive that depends on nothing else.
pack() {
    local folder=$1 file=$2 compress=(gzip --no-name --best)
    shift 2
    # The layers of an image are compressed already.
    [[ $file != *.tar ]] || compress=(cat)
    tar --create --directory "$folder" --format=gnu --sort=name --mtime="@$SOURCE_DATE_EPOCH" \
        --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX --dereference "$@" |
        "${compress[@]}" >"$file"
}

# The source of the commit, with the name of the image and nothing else changed.
take_source() {
    local source=$1 file tag files
    mkdir -p "$source"
    git -C "$root" archive HEAD install LICENSE CHANGELOG.md | tar --extract --directory "$source"
    mapfile -t files < <(grep --recursive --files-with-matches --include='*.yaml' localhost/tweed: "$source/install")
    for file in "${files[@]}"; do
        while read -r tag; do
            [ "$tag" = "$version" ] || fail "${file#"$source"/} names the image of $tag, not $version"
        done < <(sed -nE 's|.*localhost/tweed:([^ "]*).*|\1|p' "$file")
    done
    grep --quiet --line-regexp "version: $version" "$source/install/chart/Chart.yaml" ||
        fail "install/chart/Chart.yaml is not of $version"
    [ -z "${IMAGE:-}" ] || find "$source/install" -name '*.yaml' -exec \
        sed -i -e "s|localhost/tweed:|$IMAGE:|" -e "s|repository: localhost/tweed$|repository: $IMAGE|" {} +
}

# One image for all processors, and one for each where there are several.
pack_images() {
    local folder=$1 arch
    shift
    pack_image "$folder/tweed-$version-image.tar" "$@"
    [ $# -gt 1 ] || return 0
    for arch in "$@"; do
        pack_image "$folder/tweed-$version-image-$arch.tar" "$arch"
    done
}

# buildah writes its archive with the times of now, so it is packed again.
pack_image() {
    local file=$1
    shift
    say "the image for $*"
    # All times in the image are 0.
    as_root env --unset=SOURCE_DATE_EPOCH "CARGO_TARGET_DIR=$target" "$root/install/image/build.sh" \
        --output "$work/image.tar" --name "${IMAGE:-localhost/tweed}" "$@" >"$work/log" 2>&1 ||
        fail "the image was not built: $(tail -n 5 "$work/log")"
    mkdir "$work/layout"
    tar --extract --directory "$work/layout" --file "$work/image.tar"
    pack "$work/layout" "$file" blobs index.json oci-layout
    rm -rf "$work/layout" "$work/image.tar"
}

pack_programs() {
    local folder=$1 arch name builds
    shift
    for arch in "$@"; do
        say "the programs for $arch"
        builds=$("$root/.cargo/cargo-for" "$arch" --release-folder)
        name=tweed-$version-linux-$arch
        install -D --mode=755 --target-directory "$work/$name" "${programs[@]/#/$builds/}"
        install --mode=644 "$root/LICENSE" "$root/install/systemd/fast-path.conf" "$work/$name"
        # tweed-install compares with them.
        (cd "$work/$name" && sha256sum "${programs[@]}" >SHA256SUMS)
        pack "$work" "$folder/$name.tar.gz" "$name"
        name=tweedctl-$version-linux-$arch
        install -D --mode=755 --target-directory "$work/$name" "$builds/tweedctl"
        install --mode=644 "$root/LICENSE" "$work/$name"
        pack "$work" "$folder/$name.tar.gz" "$name"
        rm -rf "${work:?}"/*-"$version-linux-$arch"
    done
}

pack_manifests() {
    local folder=$1 source=$2 name=tweed-$version-manifests
    say "the manifests and the chart"
    cp "$source/install/tweed.yaml" "$folder/tweed.yaml"
    mkdir "$work/$name"
    cp --recursive "$source"/install/{*.yaml,kustomize,monitoring} "$work/$name/"
    pack "$work" "$folder/$name.tar.gz" "$name"
    cp --recursive --dereference "$source/install/chart" "$work/tweed"
    # As `helm package` names it.
    pack "$work" "$folder/tweed-$version.tgz" tweed
    rm -r "$work/tweed" "${work:?}/$name"
}

# The heading of this version in the CHANGELOG.
heading() {
    grep --max-count=1 --fixed-strings "## [$version]" "$root/CHANGELOG.md" || true
}

# What is below it, up to the next version.
changes_of_version() {
    awk -v heading="## [$version]" '
        index($0, "## ") == 1 { wanted = index($0, heading) == 1; next }
        wanted' "$root/CHANGELOG.md"
}

write_notes() {
    local folder=$1 source=$2 base digest
    digest=$(tar --extract --to-stdout --file "$folder/tweed-$version-image.tar" index.json |
        jq --raw-output '.manifests[0].digest')
    # Where the documents are: a release page is elsewhere.
    base=$(sed -nE 's/^ *runbookBase: *(.*)$/\1/p' "$source/install/chart/values.yaml")
    {
        changes_of_version | sed -E -e '1 { /^$/d }' -e "s|\]\(([^):]+\.md[^)]*)\)|](${base//&/\\&}\1)|g"
        printf '\n### Image\n\n%s\n' "\`${IMAGE:-localhost/tweed}:$version\` is \`$digest\`."
        printf '\n### Verify\n\n```sh\nsha256sum --check --ignore-missing SHA256SUMS\n'
        [ -z "${SIGN_KEY:-}" ] ||
            printf 'ssh-keygen -Y verify -f allowed_signers -I tweed -n %s -s SHA256SUMS.sig <SHA256SUMS\n' "$namespace"
        printf '```\n'
        [ -z "${SIGN_KEY:-}" ] ||
            printf '\n%s\n' "\`allowed_signers\` has one line: \`tweed\` and the public key of the project."
    } >"$folder/NOTES.md"
}

# sign FOLDER: signs the checksums, and so every file.
sign() {
    (cd "$1" && sha256sum -- * >"$work/sums" && mv "$work/sums" SHA256SUMS)
    [ -n "${SIGN_KEY:-}" ] || return 0
    say "the signature"
    ssh-keygen -q -Y sign -f "$SIGN_KEY" -n "$namespace" "$1/SHA256SUMS" ||
        fail "SIGN_KEY=$SIGN_KEY does not sign"
    ssh-keygen -Y check-novalidate -n "$namespace" -s "$1/SHA256SUMS.sig" <"$1/SHA256SUMS" >/dev/null ||
        fail "the signature does not fit the checksums"
}

# make_release FOLDER ARCH...
make_release() {
    local folder=$1 source=$work/source
    shift
    rm -rf "$folder" "$source"
    mkdir -p "$folder"
    take_source "$source"
    pack_images "$folder" "$@"
    pack_programs "$folder" "$@"
    pack_manifests "$folder" "$source"
    say "the bill of materials"
    "$root/install/release/sbom.sh" "$@" >"$folder/tweed-$version.cdx.json"
    write_notes "$folder" "$source"
    sign "$folder"
}

# What may be so in a trial.
note_what_lacks() {
    [[ $(heading) != *unreleased* ]] ||
        say "note: CHANGELOG.md calls $version unreleased"
    [[ $(value_of repository) != *.example ]] ||
        say "note: the address of the project is not set: \`repository\` in Cargo.toml, and then make manifests"
    [ -n "${SIGN_KEY:-}" ] || say "note: without SIGN_KEY= nothing is signed"
}

main() {
    local option=""
    case ${1:-} in
    --check | --preflight)
        option=$1
        shift
        ;;
    esac
    [[ ${1:--} != -* ]] || fail "usage: $0 [--check | --preflight] VERSION [ARCH...]"
    version=$1
    shift
    [ $# -gt 0 ] || set -- amd64 arm64
    out=$(realpath --canonicalize-missing "${OUT:-$target/release-$version}")
    SOURCE_DATE_EPOCH=$(git -C "$root" log -1 --format=%ct 2>/dev/null || true)
    export SOURCE_DATE_EPOCH
    check_version
    [[ ${IMAGE:-} != *:*([^/]) ]] || fail "IMAGE=$IMAGE has a tag: it gets $version"
    check_tree
    check_programs
    check_out
    check_key
    [ -n "$(heading)" ] || fail "CHANGELOG.md has no heading \"## [$version]\": add it"
    if [ "$option" = --preflight ]; then
        note_what_lacks
        return
    fi
    check_builds "$@"
    mkdir -p "$target"
    work=$(mktemp -d "$target/release.XXXXXX")
    trap 'rm -rf "$work" ${draft:+"$draft"}' EXIT
    if [ "$option" = --check ]; then
        make_release "$work/1" "$@"
        make_release "$work/2" "$@"
        diff --recursive --brief "$work/1" "$work/2" || fail "not reproducible: these files differ"
        say "made twice, it is the same: SHA256SUMS is $(sha256sum <"$work/1/SHA256SUMS" | cut -d ' ' -f 1)"
        return
    fi
    # Beside what it replaces: within a file system a folder is there as a whole or not at all.
    mkdir -p "$(dirname "$out")"
    draft=$(mktemp -d "$(dirname "$out")/.${out##*/}.XXXXXX")
    make_release "$draft/new" "$@"
    [ ! -e "$out" ] || mv "$out" "$draft/old"
    mv "$draft/new" "$out" || {
        [ ! -e "$draft/old" ] || mv "$draft/old" "$out"
        fail "$out could not be written"
    }
    say "$version of $(git -C "$root" rev-parse --short HEAD) for $* is in $out:"
    (cd "$out" && du --bytes -- * | expand -t 12)
    note_what_lacks
}

main "$@"
