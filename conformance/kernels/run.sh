#!/usr/bin/env bash
# Runs the project's release programs and tests on other kernels, under QEMU.
#
#   conformance/kernels/run.sh [JOBS [SERIES...]]
#
# JOBS are scripts in conformance/kernels/jobs, in one word ("overlay cni"; default: all, which
# is those of `jobs_of_all`), each in a guest of its own, whose kernel is given what the script
# has in a line `# kernel: ...`. SERIES is a kernel that
# `conformance/setup.sh kernels` has fetched: 5.10, 6.1, 6.12, newest (default: each of them).
# With ARCH=arm64 or ARCH=s390x in the environment the guests have that processor.
# Prints what the guests print. A job that fails runs once more; where it then passes, what the
# first guest printed is added to target/flaky.txt. Ends with an error if a job has failed twice
# on any kernel.
# Needs no root, as it emulates the guest's processor: figures of speed mean nothing there.
set -euo pipefail
shopt -s inherit_errexit

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
target=$("$root/.cargo/target-folder")
arch=${ARCH:-amd64}
kernels=$target/tools/kernels/$arch
here=$root/conformance/kernels
# In seconds, for each job on each kernel. No job takes that long; a guest that hangs does.
limit=${LIMIT:-14400}
# Of a guest, in megabytes.
memory=4096

# The suites that the guests can run, as the names of their tests.
suites=(overlay cni netns network kernel nft install programs)
# What `make kernels` runs. A job that fails does not keep the others from running.
jobs_of_all=(demo policy services beside overlay cni agent nft fast-path lockdown)

fail() {
    printf 'kernels: %s\n' "$*" >&2
    exit 1
}

# of_architecture: what emulates the guests, where the programs for them are, and what
# compiles their tests.
of_architecture() {
    case $arch in
    amd64)
        machine=(qemu-system-x86_64 -machine q35 -cpu max -serial chardev:status)
        console=ttyS0 second=ttyS1
        ;;
    arm64)
        # Not `max`, as a newer processor's signed pointers take most of the emulator's time.
        machine=(qemu-system-aarch64 -machine "virt,gic-version=3" -cpu cortex-a72 -serial chardev:status)
        console=ttyAMA0 second=ttyAMA1
        ;;
    s390x)
        machine=(qemu-system-s390x -machine s390-ccw-virtio -cpu max -device "sclplmconsole,chardev=status")
        console=ttysclp0 second=sclp_line0
        ;;
    *) fail "there are guests for amd64, arm64 and s390x, not for $arch" ;;
    esac
    release=$("$root/.cargo/cargo-for" "$arch" --release-folder)
    strip=strip
    project_tools=$target/tools/bin
    if [ "$arch" != "$(dpkg --print-architecture)" ]; then
        strip=$target/tools/cross/$arch/bin/strip
        project_tools=$target/tools/cross/$arch/tools
    fi
}

# What the guests get besides their system: the programs and tests, in the folders where they
# look for each other.
pack_project() {
    local project=$work/project/project suite program
    mkdir -p "$project"/target/{release/deps,tools/bin}
    for program in tweed tweed-agent tweedctl tweed-install tweed-ipam tweed-lab; do
        cp "$release/$program" "$project/target/release/" ||
            fail "build the release programs first: make build ARCH=$arch"
    done
    find -L "$project_tools" -maxdepth 1 -type f ! -name 'cargo-*' ! -name flanneld \
        -exec cp {} "$project/target/tools/bin/" \;
    if grep -q deps/ "${scripts[@]}"; then
        build_tests | while read -r suite program; do
            "$strip" -o "$project/target/release/deps/$suite" "$program"
        done
    fi
    if grep -q /project/image "${scripts[@]}"; then
        unpack_image "$project/image"
    fi
    if grep -q /project/target/tools/kubernetes "${scripts[@]}"; then
        pack_cluster "$work/project"
        # Everything that the nodes write stays in memory.
        memory=10240
    fi
    cp "${scripts[@]}" "$project/"
    install -m 755 "$here/init" "$work/project/init"
    (cd "$work/project" && find . -print0 | "$kernels/busybox" cpio -0 -o -H newc -R 0:0) \
        >"$work/project.cpio" 2>"$work/cpio.log" || fail "$(cat "$work/cpio.log")"
}

# pack_cluster ROOT: what a cluster of the lab and the conformance suite of network-policy-api
# need besides, in the folders where the lab looks for it.
pack_cluster() {
    local tools=target/tools/kubernetes name needed
    [ "$arch" = "$(dpkg --print-architecture)" ] || fail "a cluster runs on guests with this machine's own processor only"
    mkdir -p "$1/project/$tools"/{bin,images,policy} "$1/usr/lib" "$1/project/install"
    needed=(
        bin/{containerd,containerd-shim-runc-v2,ctr,etcd,runc,kubernetes}
        bin/{kube-apiserver,kube-controller-manager,kube-proxy,kube-scheduler,kubectl,kubelet}
        images/pause.tar policy/{agnhost.tar,clusternetworkpolicies.yaml,suite}
    )
    for name in "${needed[@]}"; do
        cp -d "$target/tools/kubernetes/$name" "$1/project/$tools/$name" ||
            fail "build the cluster and the suite first: conformance/setup.sh policy-suite"
    done
    cp "$target/tweed-image.tar" "$1/project/target/" || fail "build the image first: make image"
    cp -r "$root/install/kustomize" "$1/project/install/"
    # What the suite's report says of the project.
    sed -nE 's/^(version|repository) = "(.*)"$/\1=\2/p' "$root/Cargo.toml" >"$1/project/about"
    # The only library of runc that the guests lack.
    ldd "$target/tools/kubernetes/bin/runc" | sed -nE 's/.* => (.*libseccomp[^ ]*) .*/\1/p' |
        xargs -I FILE cp -L FILE "$1/usr/lib/"
}

# unpack_image FOLDER: the files of the container image for the guests' processor.
unpack_image() {
    local archive=$target/tweed-image-$arch.tar digest
    [ -f "$archive" ] || fail "${archive#"$root"/} is missing: run make image ARCH=$arch"
    # From the index to the manifest, and from there to the only layer.
    digest=$(tar -xOf "$archive" index.json | sed -nE 's/.*"digest":"sha256:([0-9a-f]+)".*/\1/p')
    digest=$(tar -xOf "$archive" "blobs/sha256/$digest" | sed -nE 's/.*"layers":.*"digest":"sha256:([0-9a-f]+)".*/\1/p')
    mkdir "$1"
    tar -xOf "$archive" "blobs/sha256/$digest" | tar -xz -C "$1"
}

# Prints the name and the program of each suite that the jobs run. Without `--workspace` cargo
# would compile dependencies again with other features.
build_tests() {
    local suite wanted=()
    for suite in "${suites[@]}"; do
        ! grep -q "deps/$suite\b" "${scripts[@]}" || wanted+=("--test=$suite")
    done
    "$root/.cargo/cargo-for" "$arch" test --quiet --workspace --no-run --message-format=json "${wanted[@]}" |
        sed -nE 's/.*"target":\{"kind":\["test"\],[^}]*"name":"([^"]*)".*"executable":"([^"]*)".*/\1 \2/p'
}

# boot SERIES JOB: runs the job on that kernel and returns its status.
boot() {
    local folder=$kernels/$1 qemu=$kernels/qemu status parameters
    parameters=$(sed -n 's/^# kernel: //p' "$here/jobs/$2.sh")
    cat "$kernels/guest.cpio" "$folder/modules.cpio" "$work/project.cpio" >"$work/initrd"
    rm -f "$work/status"
    # The guest's clock counts instructions instead of time, and jumps while nothing runs: to
    # the guest its processor is always equally fast, however busy this machine is.
    timeout --foreground "$limit" "$qemu"/lib64/ld-linux-x86-64.so.2 --library-path "$qemu/usr/lib/x86_64-linux-gnu" \
        "$qemu/usr/bin/${machine[0]}" -L "$qemu/usr/share/qemu" -L "$qemu/usr/share/seabios" \
        -accel tcg,thread=single -icount shift=0,sleep=off -rtc clock=vm -smp 1 -m "$memory" \
        -display none -monitor none -nic none -no-reboot -chardev "file,id=status,path=$work/status" \
        -chardev stdio,id=console,signal=on -serial chardev:console "${machine[@]:1}" \
        -kernel "$folder/vmlinuz" -initrd "$work/initrd" \
        -append "console=$console quiet panic=-1 mitigations=off job=$2 second=$second $parameters" </dev/null 2>&1 | sed -u 's/\r//g'
    # That of s390x also has a message of the boot loader.
    status=$(tail -n 1 "$work/status" 2>/dev/null | tr -dc 0-9 || true)
    return "${status:-99}"
}

# keep_files: what a job has printed as lines `file NAME: …` is the text of that file of `target`.
keep_files() {
    local name
    sed -nE 's/^file ([^ ]+): .*/\1/p' "$work/console" | sort --unique | while read -r name; do
        mkdir -p "$(dirname "$target/$name")"
        sed -n "s,^file $name: ,,p" "$work/console" >"$target/$name"
        printf '=== written: %s\n' "${target#"$root"/}/$name"
    done
}

# run SERIES JOB: the job on one kernel, with its result as a line.
run() {
    local name start=$SECONDS result=passed
    name="$2 on Linux $(cat "$kernels/$1/version") for $arch"
    printf '\n=== %s\n' "$name"
    if ! boot "$1" "$2" | tee "$work/console"; then
        printf '=== %s: failed, once more\n' "$name"
        mv "$work/console" "$work/first"
        if boot "$1" "$2" | tee "$work/console"; then
            result=flaky
            { printf '== %s\n' "$name" && cat "$work/first"; } >>"$target/flaky.txt"
        else
            result=FAILED
        fi
    fi
    keep_files
    printf '=== %s: %s, %s s\n' "$name" "$result" $((SECONDS - start))
    [ $result != FAILED ]
}

main() {
    local series job all jobs scripts failed=()
    read -ra jobs <<<"${1:-all}"
    [ "${jobs[*]}" != all ] || jobs=("${jobs_of_all[@]}")
    [ $# -eq 0 ] || shift
    if [ $# -eq 0 ]; then
        mapfile -t all < <(cd "$kernels" && dirname -- */version | sort --version-sort)
        set -- "${all[@]}"
    fi
    scripts=("${jobs[@]/#/$here/jobs/}")
    scripts=("${scripts[@]/%/.sh}")
    for job in "${jobs[@]}"; do
        [ -e "$here/jobs/$job.sh" ] || fail "there is no job $job in conformance/kernels/jobs"
    done
    of_architecture
    for series in "$@"; do
        [ -d "$kernels/$series" ] || fail "there is no kernel $series: run conformance/setup.sh kernels $arch"
    done
    work=$(mktemp -d "$target/kernels.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    pack_project
    for series in "$@"; do
        for job in "${jobs[@]}"; do
            run "$series" "$job" || failed+=("$job on $series")
        done
    done
    [ ${#failed[@]} -eq 0 ] || fail "failed: $(printf '%s, ' "${failed[@]}" | sed 's/, $//')"
}

# On one line: bash reads a script while it runs it, and this file may be edited meanwhile.
main "$@"; exit
