# The version that an upgrade starts from, and a downgrade ends at. Sourced by setup.sh.
#
# Its source is that of the last tag whose version is not this one's. As long as there is no
# such tag, it is that of the commit in `previous-commit`. Where that is not in the history
# either (a tarball, a shallow clone), it is the committed source, with other formats of the
# records, of the nftables rules and of the file of Nodes. Its version gets the suffix
# `-previous` if it is the same as this one's.

previous=$target/previous
# Where it is below the source folder, which it need not be.
target_inside=./${target#"$root"/}
# Files of the source that do not change the programs, the image or the manifest.
not_previous=(.ci .git .gitignore CHANGELOG.md CONTRIBUTING.md ARCHITECTURE.md LICENSE Makefile README.md
    ROADMAP.md SECURITY.md clippy.toml conformance deny.toml docs)
previous_programs=(tweed tweed-agent tweed-install tweed-ipam tweedctl)

build_previous() {
    local step=previous origin version inputs start=$SECONDS
    version=$(version_of <"$root/Cargo.toml")
    origin=$(origin_before "$version")
    inputs=$(cat "$conformance/setup/previous.sh" <(source_id "$origin") | sha256sum)
    done_before "$step" "$inputs" "$previous"/target/tweed-image.tar "$previous"/install/tweed.yaml && return
    say "building the version to upgrade from, of ${origin:-this source with other formats, as its commit is not in the history} (up to 3 minutes the first time)"
    find "$previous" -mindepth 1 -maxdepth 1 ! -name target -exec rm -rf {} + 2>/dev/null || true
    mkdir -p "$previous"
    # With the current time: cargo must not take a file for the older one of an earlier copy.
    write_source "$origin" | tar -x -m -C "$previous"
    [ "$(version_of <"$previous/Cargo.toml")" != "$version" ] || rename_version "$version"
    [ -n "$origin" ] || change_formats
    link_dependencies
    build_programs_fast
    # What its image has besides its programs is this one's.
    mkdir -p "$previous/target/tools"
    ln -sfn "$tools/image-nft" "$previous/target/tools/image-nft"
    as_root env "CARGO_TARGET_DIR=$previous/target" "$previous/install/image/build.sh"
    mark_done "$step" "$inputs"
    say "the version to upgrade from is $(version_of <"$previous/Cargo.toml") ($((SECONDS - start)) s)"
}

# The version of the workspace whose Cargo.toml is on stdin.
version_of() {
    sed -nE 's/^version = "(.*)"$/\1/p' | head -n 1
}

has_git() { git -C "$root" rev-parse --quiet --verify HEAD >/dev/null 2>&1; }

# The newest tag of another version than $1, or else the commit in `previous-commit`;
# nothing if that is not there.
origin_before() {
    local tag commit
    has_git || return 0
    for tag in $(git -C "$root" tag --list 'v[0-9]*' --merged HEAD --sort=-version:refname); do
        if [ "$(git -C "$root" show "$tag:Cargo.toml" | version_of)" != "$1" ]; then
            printf '%s\n' "$tag"
            return
        fi
    done
    commit=$(cat "$conformance/setup/previous-commit")
    if git -C "$root" rev-parse --quiet --verify "$commit^{commit}" >/dev/null; then
        printf '%s\n' "$commit"
    fi
}

# A text that changes when the source of that tag or commit, or else the committed one, changes.
source_id() {
    local skip='NR == FNR { skip[$0]; next } !($2 in skip)'
    if has_git; then
        git -C "$root" ls-tree "${1:-HEAD}" | awk -F '\t' "$skip" <(printf '%s\n' "${not_previous[@]}") -
    else
        (cd "$root" && find . -type f ! -path './target/*' ! -path "$target_inside/*" -exec sha256sum {} + | sed 's|  \./|\t|' |
            awk -F '[\t/]' "$skip" <(printf '%s\n' "${not_previous[@]}") - | sort)
    fi
}

# That source as an archive on stdout.
write_source() {
    if has_git; then
        git -C "$root" archive "${1:-HEAD}"
    else
        tar -c --exclude=./target --exclude="$target_inside" --exclude=./.git -C "$root" .
    fi
}

# Gives the copy, whose version is $1, another one, and so its image another name.
rename_version() {
    local version=$1 manifest
    change Cargo.toml "s/^version = \"$version\"$/version = \"$version-previous\"/"
    for manifest in install/tweed.yaml install/kustomize/base/daemonset.yaml; do
        change "$manifest" "s|localhost/tweed:$version$|localhost/tweed:$version-previous|"
    done
}

# Makes the copy of this source differ in everything that an upgrade has to handle: each
# version writes a key into records that the other does not know, a table into the kernel
# that the other one replaces, and a file of Nodes that the other one does not read.
change_formats() {
    lower_constant 'pub const FORMAT_VERSION: u32 = '
    change "$(file_with 'pub held: bool,')" 's/^( *)pub held: bool,$/\1#[serde(rename = "heldBefore")]\n&/'
    # Adds the name of the struct to every record, under this key.
    change "$(file_with 'pub struct Record {')" 's/^pub struct Record \{$/#[serde(tag = "kindBefore")]\n&/'
    lower_constant 'const FORMAT: u32 = ' nft/src/overlay/mod.rs
    lower_constant 'pub const FORMAT: u32 = ' node-agent/src/kept_nodes/format.rs
}

# lower_constant DECLARATION [FILE]: subtracts 1 from the constant that is declared so.
lower_constant() {
    local file=${2:-} value
    [ -n "$file" ] || file=$(file_with "$1")
    value=$(sed -nE "s/^$1([0-9]+);$/\1/p" "$previous/$file")
    change "$file" "s/^($1).*/\1$((value - 1));/"
}

# file_with TEXT: the only source file of the copy with a line that starts with this text
# after spaces.
file_with() {
    local files
    mapfile -t files < <(cd "$previous" && grep --recursive --files-with-matches --include='*.rs' \
        --exclude-dir=target --extended-regexp "^ *${1//\{/\\\{}" .)
    [ ${#files[@]} -eq 1 ] ||
        fail "conformance/setup/previous.sh expects \`$1\` in one file, and it is in ${#files[@]}: ${files[*]}"
    printf '%s\n' "${files[0]}"
}

# change FILE EXPRESSION: edits a file of the copy by sed; the file must change.
change() {
    local file=$previous/$1
    sed -E -i.before "$2" "$file"
    if cmp -s "$file" "$file.before"; then
        fail "$1 is not as conformance/setup/previous.sh expects it: \`$2\` changes nothing"
    fi
    rm "$file.before"
}

# The programs are built as `cargo build --workspace` builds them, so that the dependencies
# that it has compiled for the tests are the same and need not be compiled again. cargo
# checks them by their fingerprints, and compiles what is missing. Compiled libraries are
# links: cargo and rustc never write to an existing one.
link_dependencies() {
    local from=$target/debug to=$previous/target/debug
    [ -d "$from/deps" ] || return 0
    mkdir -p "$to"
    (
        cd "$from"
        find .fingerprint build -maxdepth 1 -mindepth 1 ! -name 'tweed*' -print0 |
            xargs -0 cp --archive --no-clobber --parents --target-directory "$to"
        find deps -maxdepth 1 -type f -name '*.d' ! -name '*tweed*' -print0 |
            xargs -0 cp --archive --no-clobber --parents --target-directory "$to"
        find deps -maxdepth 1 -type f \( -name '*.rlib' -o -name '*.rmeta' -o -name '*.so' \) ! -name '*tweed*' -print0 |
            xargs -0 cp --archive --link --no-clobber --parents --target-directory "$to"
    )
}

# Puts the programs of the image into the folder where its build looks for them.
build_programs_fast() {
    local program
    (
        cd "$previous"
        CARGO_TARGET_DIR=$previous/target CARGO_INCREMENTAL=0 \
            cargo build --quiet --workspace "${previous_programs[@]/#/--bin=}"
    )
    for program in "${previous_programs[@]}"; do
        install -D --strip --mode=755 --target-directory="$previous/target/release" "$previous/target/debug/$program"
    done
}
