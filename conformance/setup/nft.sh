# Versions of nft that are not this machine's own: that of the image, and the newest one that
# Debian offers. Sourced by setup.sh.

# Only unpacked, with all libraries that it needs: those of another release do not go with this
# machine's C library. `nft-newest` runs it by the loader of its own, wherever the folder is.
unpack_newest_nft() {
    local step=nft-newest folder=$tools/nft inputs program loader library
    inputs=$(hash_of "$conformance/setup/nft.sh")
    program=$tools/bin/nft-newest
    if done_before "$step" "$inputs" "$program" "$folder/usr/sbin/nft"; then
        return
    fi
    say "unpacking the newest nft of Debian into ${tools#"$root"/}/nft"
    scratch_folder
    from_releases "$(dpkg --print-architecture)" sid
    fetch_packages "$scratch/nft" install --yes --download-only --no-install-recommends \
        "${release_options[@]}" nftables
    loader=$(cd "$scratch/nft" && find usr/lib -name 'ld-linux*.so.*' -type f)
    [ -f "$scratch/nft/$loader" ] || fail "Debian's libc6 has no loader, or several: '$loader'"
    library=${loader%/*}
    rm -rf "$folder"
    mkdir -p "$folder/usr/sbin" "$folder/$library" "$tools/bin"
    mv "$scratch/nft/usr/sbin/nft" "$folder/usr/sbin/"
    find "$scratch/nft/$library" -maxdepth 1 -name '*.so*' -exec mv {} "$folder/$library/" \;
    {
        printf '#!/bin/sh\n'
        # shellcheck disable=SC2016 # for the script to expand
        printf 'folder=$(dirname "$(dirname "$(readlink -f "$0")")")/nft\n'
        # shellcheck disable=SC2016 # for the script to expand
        printf 'exec "$folder/%s" --library-path "$folder/%s" "$folder/usr/sbin/nft" "$@"\n' \
            "$loader" "$library"
    } >"$program.new"
    chmod 755 "$program.new"
    mv "$program.new" "$program"
    say "$("$program" --version)"
    mark_done "$step" "$inputs"
}

# The release of Debian whose nft is in the image. That of Debian 12 crashes over sets that newer
# ones have made in any table of the machine.
image_release=trixie

# unpack_image_nft ARCH...: nft for each of these processors, and all that it needs.
unpack_image_nft() {
    local arch step folder inputs
    inputs=$(hash_of "$conformance/setup/nft.sh")
    for arch in "$@"; do
        step=image-nft-$arch folder=$tools/image-nft/$arch
        if done_before "$step" "$inputs" "$folder/usr/sbin/nft"; then
            continue
        fi
        say "unpacking the image's nft for $arch into ${tools#"$root"/}/image-nft/$arch"
        scratch_folder
        from_releases "$arch" "$image_release" "$image_release-security"
        unpack_tree "$scratch/image-nft/$arch" "${release_options[@]}" nftables
        rm -rf "$folder"
        mkdir -p "${folder%/*}"
        mv "$scratch/image-nft/$arch" "$folder"
        mark_done "$step" "$inputs"
    done
}
