# The agent on one node, and the operations of netlink and of namespaces below it. A suite that
# fails does not keep the others from running.
cd /project/target/release
failed=()
run() {
    # As cargo names the program to the tests of its package.
    env "CARGO_BIN_EXE_tweed-agent=$PWD/tweed-agent" "$@" || failed+=("$1")
}

skipped_of_netns=() skipped_of_network=()
case $(uname -r) in
5.10.* | 6.1.*)
    # Before Linux 6.8 a new link may drop what it sends for a moment after ADD.
    skipped_of_netns=(--skip the_first_packet_passes_both_ways)
    # Before Linux 6.2 nobody can rename a link that is up.
    skipped_of_network=(--skip a_device_that_somebody_renamed --skip a_renamed_link_of_a_pod)
    ;;
esac
run deps/netns "${skipped_of_netns[@]}"
run deps/kernel
run deps/network "${skipped_of_network[@]}"

printf '\nfailed: %s\n' "${failed[*]:-none}"
[ ${#failed[@]} -eq 0 ]
