#!/usr/bin/env bash
# Installs what the lab, the tests and the checks need, and only what is missing.
#
#   conformance/setup.sh demo       for `make demo`
#   conformance/setup.sh            for the lab: the same, and the reference CNI plugins
#   conformance/setup.sh test       for `make test`: the same, cargo-nextest, what the
#                                   benchmarks run, what policies and Services are compared
#                                   with, and the newest nft
#   conformance/setup.sh image [ARCH...]
#                                   for `make image`: buildah, and nft for these processors
#   conformance/setup.sh release [ARCH...]
#                                   for `make release`: the same, and what packs and signs
#   conformance/setup.sh e2e        for the lab and `release`, and for `make cluster` and `make
#                                   e2e` a whole Kubernetes, helm and promtool: many minutes the
#                                   first time
#   conformance/setup.sh kubernetes-versions
#                                   for `make e2e-full`: the other versions of Kubernetes
#   conformance/setup.sh policy-suite
#                                   for `make e2e-full`: the conformance suite of
#                                   network-policy-api
#   conformance/setup.sh previous   for `make e2e`: the version that upgrades start from
#   conformance/setup.sh bench      for `make bench`: what `test` has, flannel's daemon and
#                                   kube-router, which it measures beside tweed
#   conformance/setup.sh kernels    for `make kernels`: Debian's kernels and QEMU, only unpacked
#   conformance/setup.sh cross ARCH for `make build ARCH=…`: what compiles programs for another
#                                   processor and runs them, only unpacked; `kernels ARCH` has
#                                   the kernels for it
#   conformance/setup.sh deny       for `make deny`
#   conformance/setup.sh fuzz       for `make fuzz`: cargo-fuzz
#   conformance/setup.sh fast-path  for `make fast-path-object`: clang 14, the version that the
#                                   committed object is compiled by
#
# Debian packages are installed in the system by apt-get, with sudo if the caller is not
# root. Everything else is written to `tools` in cargo's target folder; Go and cargo use their
# usual download caches. Running it again changes nothing and takes no time.
set -euo pipefail
shopt -s inherit_errexit

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
target=$("$root/.cargo/target-folder")
tools=$target/tools
conformance=$root/conformance

say() { printf 'setup: %s\n' "$*"; }
fail() {
    printf 'setup: %s\n' "$*" >&2
    exit 1
}

# Not every user's PATH has the folders of the system's programs.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
# Files that are unpacked and written into images must not depend on the caller.
umask 022

for part in stamps packages rust go kubernetes images previous peers policy services kernels cross nft; do
    # shellcheck source=/dev/null
    . "$conformance/setup/$part.sh"
done

demo() {
    lab_programs | install_packages
    check_rust
    build_tools go-cnitool cnitool github.com/containernetworking/cni/cnitool
}

lab() {
    lab_programs | install_packages
    check_rust
    build_tools go-tools "cnitool and the reference CNI plugins" tool
    build_flannel_plugin
}

image() {
    image_programs | install_packages
    check_rust
    [ $# -gt 0 ] || set -- "$(dpkg --print-architecture)"
    unpack_image_nft "$@"
}

release() {
    image "$@"
    release_programs | install_packages
}

end_to_end() {
    lab
    release
    cluster_programs | install_packages
    warn_of_little_room
    build_cluster
    make_images
    unpack_promtool
    unpack_policy_definition
}

kubernetes_versions() {
    end_to_end
    build_other_versions
}

policy_suite() {
    end_to_end
    build_policy_suite
}

previous() {
    image
    build_previous
}

tests() {
    lab
    install_nextest
    bench_programs | install_packages
    build_policy_judge
    build_services_judge
    unpack_newest_nft
}

bench() {
    tests
    peer_programs | install_packages
    build_peers
}

kernels() {
    lab
    cross "${1:-}"
    build_cross_tools "${1:-}"
    build_kernels "${1:-}"
}

# Nothing for this machine's own processor.
cross() {
    lab_programs | grep '^cc ' | install_packages
    check_rust
    build_cross "${1:-}"
}

# cargo-deny is built from source, which needs a C compiler. `.ci/run` needs it first.
deny() {
    lab_programs | grep '^cc ' | install_packages
    check_rust
    install_deny
}

fuzz() {
    fuzz_programs | install_packages
    check_rust
    install_fuzz
}

fast_path() {
    fast_path_programs | install_packages
}

main() {
    case ${1:-lab} in
    demo) demo ;;
    lab) lab ;;
    image) image "${@:2}" ;;
    release) release "${@:2}" ;;
    e2e) end_to_end ;;
    kubernetes-versions) kubernetes_versions ;;
    policy-suite) policy_suite ;;
    previous) previous ;;
    test) tests ;;
    bench) bench ;;
    kernels) kernels "${2:-}" ;;
    cross) cross "${2:-}" ;;
    deny) deny ;;
    fuzz) fuzz ;;
    fast-path) fast_path ;;
    *) fail "usage: $0 [demo|lab|test|image [ARCH...]|release [ARCH...]|e2e|kubernetes-versions|policy-suite|previous|bench|kernels [ARCH]|cross [ARCH]|deny|fuzz|fast-path]" ;;
    esac
}

# On one line: bash reads a script while it runs it, and this file may be edited meanwhile.
main "$@"; exit
