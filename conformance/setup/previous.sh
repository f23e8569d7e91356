# The version that an upgrade starts from, and a downgrade ends at. Sourced by setup.sh.
#
# Its source comes from the last tag whose version is not this one's. Until there is
# one, this source takes its part: as it was committed, with another version, with
# records in another format, and with other nftables rules to replace.

previous=$root/target/previous
# What the programs and the image are made of.
previous_inputs=(.cargo Cargo.toml cni cni-plugin core diagnosis install ipam netlink nft node-agent planner watch)

build_previous() {
    local step=previous tag version inputs start=$SECONDS
    version=$(version_of <"$root/Cargo.toml")
    tag=$(tag_before "$version")
    inputs=$(cat "$conformance/setup/previous.sh" <(source_id "$tag") | sha256sum)
    done_before "$step" "$inputs" "$previous"/target/tweed-image.tar "$previous"/install/tweed.yaml && return
    say "building the version to upgrade from, of ${tag:-this source} (about 3 minutes the first time)"
    find "$previous" -mindepth 1 -maxdepth 1 ! -name target -exec rm -rf {} + 2>/dev/null || true
    mkdir -p "$previous"
    # Times of now: cargo must not take a file for the older one that was here.
    write_source "$tag" | tar -x -m -C "$previous"
    [ -n "$tag" ] || disguise "$version"
    build_programs_fast
    as_root "$previous/install/image/build.sh"
    mark_done "$step" "$inputs"
    say "the version to upgrade from is $(version_of <"$previous/Cargo.toml") ($((SECONDS - start)) s)"
}

# The version of the workspace whose Cargo.toml is on stdin.
version_of() {
    sed -nE 's/^version = "(.*)"$/\1/p' | head -n 1
}

has_git() { git -C "$root" rev-parse --quiet --verify HEAD >/dev/null 2>&1; }

# The newest tag of another version than $1; nothing where there is none.
tag_before() {
    local tag
    has_git || return 0
    for tag in $(git -C "$root" tag --list 'v[0-9]*' --merged HEAD --sort=-version:refname); do
        if [ "$(git -C "$root" show "$tag:Cargo.toml" | version_of)" != "$1" ]; then
            printf '%s\n' "$tag"
            return
        fi
    done
}

# What changes when the source of that tag, or else the committed one, does.
source_id() {
    if has_git; then
        git -C "$root" ls-tree "${1:-HEAD}" "${previous_inputs[@]}"
    else
        (cd "$root" && find "${previous_inputs[@]}" -type f -print0 | sort -z | xargs -0 sha256sum)
    fi
}

# That source as an archive on stdout.
write_source() {
    if has_git; then
        git -C "$root" archive "${1:-HEAD}"
    else
        tar -c --exclude=./target --exclude=./.git -C "$root" .
    fi
}

# Makes the copy of this source, whose version is $1, differ in all that an upgrade
# has to cope with: each version writes a key into records that the other does not
# know, and a table into the kernel that the other replaces.
disguise() {
    local version=$1 format
    change Cargo.toml "s/^version = \"$version\"$/version = \"$version-previous\"/"
    change install/tweed.yaml "s|localhost/tweed:$version$|localhost/tweed:$version-previous|"
    format=$(sed -nE 's/^pub const FORMAT_VERSION: u32 = ([0-9]+);$/\1/p' "$previous/ipam/src/record.rs")
    change ipam/src/record.rs "s/^(pub const FORMAT_VERSION: u32 =) .*/\1 $((format - 1));/"
    change ipam/src/record.rs 's/^( *)pub held: bool,$/\1#[serde(rename = "heldBefore")]\n&/'
    # Puts the name of the struct into every record, under this key.
    change ipam/src/record.rs 's/^pub struct Record \{$/#[serde(tag = "kindBefore")]\n&/'
    format=$(sed -nE 's/^const FORMAT: u32 = ([0-9]+);$/\1/p' "$previous/nft/src/inet_tweed/mod.rs")
    change nft/src/inet_tweed/mod.rs "s/^(const FORMAT: u32 =) .*/\1 $((format - 1));/"
}

# change FILE EXPRESSION: edits a file of the copy by sed; it must not stay the same.
change() {
    local file=$previous/$1
    sed -E -i.before "$2" "$file"
    if cmp -s "$file" "$file.before"; then
        fail "$1 is not as conformance/setup/previous.sh expects it: \`$2\` changes nothing"
    fi
    rm "$file.before"
}

# Release programs, quickly built rather than small or fast. Only those of the image.
build_programs_fast() {
    (
        cd "$previous"
        export CARGO_TARGET_DIR=$previous/target CARGO_PROFILE_RELEASE_LTO=off \
            CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
            CARGO_PROFILE_RELEASE_INCREMENTAL=false
        cargo build --release --quiet --bins \
            --package tweed-agent --package tweed-cni-plugin --package tweed-ipam --package tweed-install
    )
}
