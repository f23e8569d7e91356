# The agent on one node, and the operations of netlink and of namespaces below it. A suite that
# fails does not keep the others from running.
cd /project/target/release
failed=()
run() {
    "$@" || failed+=("$1")
}

skipped=()
# Before Linux 6.8 a new link may drop what it sends for a moment after ADD.
case $(uname -r) in 5.10.* | 6.1.*) skipped=(--skip the_first_packet_passes_both_ways) ;; esac
run deps/netns "${skipped[@]}"
run deps/kernel
run deps/network

printf '\nfailed: %s\n' "${failed[*]:-none}"
[ ${#failed[@]} -eq 0 ]
