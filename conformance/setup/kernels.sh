# Other kernels, the machine that runs them, and the system that runs on them. Sourced by
# setup.sh.
#
# Nothing is installed. The kernels come from several releases of Debian, and a machine that
# installs from two releases soon consists of both.

# What `make kernels` runs, from the oldest to the newest: the least kernel that the
# documents name, that of Debian 12, the one of its backports, and the newest in Debian's
# testing release. For s390x Debian has only two of them.
kernel_series=(5.10 6.1 6.12 newest)
kernel_series_s390x=(6.1 newest)

# The programs of the guest's system: those of the lab, those that a kernel with IPVS, SCTP
# and netem needs beside them, and what a test's shell script expects.
guest_packages=(
    bash busybox-static coreutils grep kmod mount procps sed util-linux
    conntrack ethtool iproute2 iptables iputils-ping nftables strace tcpdump
    ipvsadm
)

# build_kernels ARCH: the kernels for that processor, which is emulated in any case.
build_kernels() {
    of_architecture "$1"
    local step=kernels-$architecture inputs series emulator
    [ "$architecture" != s390x ] || kernel_series=("${kernel_series_s390x[@]}")
    kernels=$tools/kernels/$architecture
    # Both have a part in the system of the guests.
    inputs=$(hash_of "$conformance/setup/"{kernels,cross}.sh)
    if done_before "$step" "$inputs" "$kernels"/{busybox,guest.cpio,qemu} "${kernel_series[@]/#/$kernels/}"; then
        return
    fi
    [ "$own_architecture" = amd64 ] ||
        fail "'make kernels' runs on Debian for amd64 only: this is another machine, or no Debian"
    case $architecture in
    amd64) emulator=qemu-system-x86 ;;
    arm64) emulator=qemu-system-arm ;;
    s390x) emulator=qemu-system-s390x ;;
    esac
    say "fetching ${#kernel_series[@]} kernels, QEMU and the system of the guests into ${tools#"$root"/}/kernels/$architecture (1 min, 500 MB)"
    rm -rf "$kernels"
    # Where they were before each processor had a folder of its own.
    rm -rf "$tools"/kernels/{busybox,guest.cpio,qemu,5.10,6.1,6.12,newest} "$tools"/stamps/kernels{,.lock}
    make_helpers
    make_guest
    for series in "${kernel_series[@]}"; do
        make_kernel "$series"
    done
    # QEMU 7.2 of Debian 12 itself emulates 6.12 wrongly: its guests crash.
    from_releases amd64 bookworm bookworm-backports bookworm-security
    fetch_packages "$kernels/qemu" install --yes --download-only --no-install-recommends \
        "${release_options[@]}" --target-release bookworm-backports "$emulator"
    mark_done "$step" "$inputs"
}

# Programs for this machine that write what the guests start from.
make_helpers() {
    scratch_folder
    helpers=$scratch/helpers
    unpack_tree "$helpers" busybox-static kmod
    mkdir -p "$kernels"
    cp "$helpers/usr/bin/busybox" "$kernels/"
}

# The system of the guests. It is of this machine's own release, because the tests that run
# in it are linked with the C library of this machine.
make_guest() {
    guest=$scratch/guest
    unpack_tree_of "$architecture" "$guest" "${guest_packages[@]}"
    rm -rf "$guest"/usr/share/{doc,i18n,info,locale,man,zoneinfo} "$guest"/usr/lib/*/gconv
    # Links that scripts of their packages would make.
    ln -sf bash "$guest/usr/bin/sh"
    ln -sf iptables-nft "$guest/usr/sbin/iptables"
    ln -sf ip6tables-nft "$guest/usr/sbin/ip6tables"
    printf '%s\n' 'root:x:0:0:root:/root:/bin/bash' 'nobody:x:65534:65534:nobody:/:/bin/sh' >"$guest/etc/passwd"
    printf '%s\n' 'root:x:0:' 'nogroup:x:65534:' >"$guest/etc/group"
    archive_of "$guest" "$kernels/guest.cpio"
}

# archive_of FOLDER FILE: the files of a folder, as the kernel unpacks them at its start.
archive_of() {
    mkdir -p "$(dirname "$2")"
    (cd "$1" && find . -print0 | "$kernels/busybox" cpio -0 -o -H newc -R 0:0) >"$2" 2>"$scratch/cpio.log" ||
        fail "could not write $2: $(cat "$scratch/cpio.log")"
}

# make_kernel SERIES: writes a kernel, an archive of all its modules, and its version. Where
# there is a choice, it is of the cloud flavour, which has no drivers of real hardware.
make_kernel() {
    local series=$1 folder=$scratch/$1 modules packages version
    case $series in
    # The lists of bullseye-security still name kernels for arm64 that it does not have.
    5.10) from_releases "$architecture" bullseye $([ "$architecture" = arm64 ] || echo bullseye-security) ;;
    6.1) from_releases "$architecture" bookworm bookworm-security ;;
    6.12) from_releases "$architecture" bookworm-backports bookworm-security ;;
    newest) from_releases "$architecture" forky ;;
    esac
    # Since 7.x the modules have a package of their own.
    case $series in
    newest) packages=(linux-modules- linux-binary-) ;;
    *) packages=("linux-image-") ;;
    esac
    version=$(newest_version "${packages[0]}" "$series")
    [ -n "$version" ] || fail "Debian has no kernel $series for $architecture any more: see conformance/setup/kernels.sh"
    mkdir -p "$folder/boot"
    fetch_packages "$folder" download "${release_options[@]}" "${packages[@]/%/$version}"
    # As a script of the package does. By its loader, because its C library may not be this
    # machine's.
    "$helpers"/lib64/ld-linux-x86-64.so.2 --argv0 depmod --library-path "$helpers/usr/lib/x86_64-linux-gnu" \
        "$helpers/usr/bin/kmod" -b "$folder" "$version" 2>"$scratch/depmod.log" || fail "$(cat "$scratch/depmod.log")"
    modules=$scratch/modules-$series
    mkdir -p "$modules/usr/lib/modules"
    mv "$folder/usr/lib/modules/$version" "$modules/usr/lib/modules/"
    mkdir -p "$kernels/$series"
    find "$folder/boot" "$modules" -name 'vmlinuz*' -exec mv {} "$kernels/$series/vmlinuz" \;
    archive_of "$modules" "$kernels/$series/modules.cpio"
    printf '%s\n' "$version" >"$kernels/$series/version"
}

# newest_version PREFIX SERIES: the version of Debian's newest such package.
newest_version() {
    local number=${2/newest/[0-9]} flavour=cloud-$architecture
    [ "$architecture" != s390x ] || flavour=s390x
    apt-cache "${release_options[@]}" search --names-only "^$1${number//./[.]}[.][0-9].*-$flavour\$" |
        sed -nE "s/^$1([^ ]*) .*/\1/p" | sort --version-sort | tail -n 1
}

# from_releases ARCH RELEASE...: sets `release_options`, with which apt knows only the
# packages of these releases of Debian for that processor, and nothing of what is installed
# here.
from_releases() {
    local mirror=${DEBIAN_MIRROR:-http://deb.debian.org} release state key archive
    key=/usr/share/keyrings/debian-archive-keyring.gpg
    scratch_folder
    state=$scratch/apt-$(printf '%s+' "$@")
    release_options=(
        -o Dir::Etc::SourceList="$state/sources.list" -o Dir::Etc::SourceParts=/dev/null
        -o Dir::Etc::PreferencesParts=/dev/null
        -o Dir::State::Lists="$state/lists" -o Dir::State::status=/dev/null
        -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache=
        -o APT::Architecture="$1" -o APT::Architectures="$1"
        # An old release's lists are past their date.
        -o Acquire::Check-Valid-Until=false -o Acquire::Languages=none
        -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false
        -o APT::Sandbox::User="$(id -un)"
    )
    [ ! -d "$state" ] || return 0
    mkdir -p "$state/lists/partial"
    shift
    for release in "$@"; do
        archive=debian
        [[ $release != *-security ]] || archive=debian-security
        printf 'deb [signed-by=%s] %s/%s %s main\n' "$key" "$mirror" "$archive" "$release"
    done >"$state/sources.list"
    apt-get "${release_options[@]}" -qq update ||
        fail "could not read Debian's package lists of: $*"
}
