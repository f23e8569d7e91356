# Debian packages, which are installed or only unpacked. Sourced by setup.sh.

# Each line of a list: a required program, or the path of a file, its package, and its purpose.
lab_programs() {
    cat <<'LIST'
ip        iproute2      namespaces, links and routes of the lab
bridge    iproute2      the forwarding entries of a VXLAN device
nft       nftables      the node's rules and the lab's switch
ping      iputils-ping  the probes
tcpdump   tcpdump       captures in tests
ethtool   ethtool       device features in tests
conntrack conntrack     what a node translates
iptables  iptables      the reference plugins portmap and firewall
strace    strace        kills and errors at single system calls
cc        gcc           linking Rust programs
LIST
}

fuzz_programs() {
    cat <<'LIST'
cc        gcc           linking Rust programs
c++       g++           libFuzzer, which is compiled from the sources in its crate
LIST
}

fast_path_programs() {
    cat <<'LIST'
clang-14                        clang-14        the programs of the fast path
llvm-strip-14                   llvm-14         their object without what only a debugger reads
/usr/include/bpf/bpf_helpers.h  libbpf-dev      what the kernel offers to programs
/usr/include/linux/bpf.h        linux-libc-dev  the kernel's types
LIST
}

image_programs() {
    cat <<'LIST'
buildah   buildah       the container image
LIST
}

release_programs() {
    cat <<'LIST'
git         git             the commit that a release is made of
jq          jq              the bill of materials
gzip        gzip            the archives
ssh-keygen  openssh-client  the signature
LIST
}

cluster_programs() {
    cat <<'LIST'
mount     mount         the file systems of a node
unshare   util-linux    the namespaces of a node
nsenter   util-linux    programs inside a node
sysctl    procps        the settings that a kubelet changes
LIST
}

bench_programs() {
    cat <<'LIST'
iperf3    iperf3        the streams and packets of the benchmarks
sockperf  sockperf      the requests of the benchmarks
taskset   util-linux    both on a CPU of their own
chrt      util-linux    real-time priority for what takes the time
LIST
}

peer_programs() {
    cat <<'LIST'
ipset     ipset         the sets of kube-router's policies
LIST
}

# Reads such a list and installs what is missing.
install_packages() {
    local program package why missing=()
    while read -r program package why; do
        if [[ $program = /* ]]; then
            [ -e "$program" ] && continue
        elif command -v "$program" >/dev/null; then
            continue
        fi
        say "missing $program: installing $package ($why)"
        missing+=("$package")
    done
    # Static programs also need the archive of the C library; gcc only recommends it.
    if ! command -v cc >/dev/null || [ "$(cc -print-file-name=libc.a)" = libc.a ]; then
        say "missing libc.a: installing libc6-dev (static programs)"
        missing+=(libc6-dev)
    fi
    apt_install "${missing[@]}"
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        fail "needs root for: $*; run it as root or install sudo"
    fi
}

apt_install() {
    [ $# -gt 0 ] || return 0
    command -v apt-get >/dev/null || fail "no apt-get here; install by hand: $*"
    apt_update
    lock_step apt
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "$@" >/dev/null
    unlock_step apt
}

apt_update() {
    lock_step apt
    as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq
    unlock_step apt
}

# unpack_packages FOLDER PACKAGE...: unpacks the files of packages into a folder. Nothing
# is installed, so no service starts and the system does not change.
unpack_packages() {
    local folder=$1
    shift
    fetch_packages "$folder" download "$@"
}

# unpack_tree FOLDER PACKAGE...: the same with all dependencies of the packages, for a
# root file system.
unpack_tree() {
    local folder=$1
    shift
    # With an empty status file, apt treats no package as installed. Its caches are
    # disabled, so that they do not record that.
    fetch_packages "$folder" install --yes --download-only --no-install-recommends \
        -o Dir::State::status=/dev/null -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= "$@"
}

# merged_usr FOLDER: creates the links at the root of a Debian system, which packages of
# version 12 still use in the names of some files.
merged_usr() {
    local name
    for name in bin sbin lib lib64; do
        mkdir -p "$1/usr/$name"
        ln -sfn "usr/$name" "$1/$name"
    done
}

# fetch_packages FOLDER VERB-AND-ARGUMENTS...: the common part of both functions.
fetch_packages() {
    local folder=$1 archives log archive
    shift
    command -v apt-get >/dev/null ||
        fail "no apt-get here: the cluster's runc and the programs in its images come from Debian's packages"
    scratch_folder
    archives=$(mktemp -d "$scratch/packages.XXXXXX")
    mkdir -p "$archives/partial"
    merged_usr "$folder"
    log=$archives/log
    # `download` writes to the current folder, `install` to the folder of the cache.
    local apt=(apt-get -qq -o Dir::Cache::archives="$archives" -o Debug::NoLocking=1
        -o APT::Sandbox::User="$(id -un)")
    if ! (cd "$archives" && "${apt[@]}" "$@") >"$log" 2>&1; then
        # The usual cause is an old package list with a version that the server has replaced.
        apt_update
        (cd "$archives" && "${apt[@]}" "$@") >"$log" 2>&1 ||
            fail "could not download Debian packages (apt-get $*): $(cat "$log")"
    fi
    for archive in "$archives"/*.deb; do
        # `dpkg -x` would replace a link by a folder.
        dpkg --fsys-tarfile "$archive" | tar -x --keep-directory-symlink -C "$folder"
    done
    rm -r "$archives"
}
