# Everything that `make kernels` runs: the demo, the suites, and the tests of what this
# machine's kernel may lack. A suite that fails does not keep the others from running.
cd /project/target/release
failed=()
run() {
    printf '\n--- %s\n' "$*"
    "$@" || failed+=("$(basename "$1")")
}

run ./tweed-lab demo
run ./tweed-lab policy

# The overlay between nodes, with IPVS, SCTP and netem. Programs that are killed at each of
# their system calls take too long in an emulator.
run deps/overlay --include-ignored --skip crash::
# The plugin, and the reference plugins for what any plugin must do.
run deps/cni --skip crash::
run deps/netns
# The agent, and the netlink and nftables operations below it.
run deps/network
run deps/kernel
# Without a storm of writes that takes too long in an emulator.
run deps/nft --skip no_client_is_refused_that_old_and_new_source_ranges_allow
# Services with SCTP and VRFs, and from a kube-proxy with IPVS to tweed and back.
skipped=()
[[ $(uname -r) != 5.10.* ]] || skipped=(--skip a_flow_that_is_led_into_a_vrf)
run deps/nft services::sctp services::links --ignored "${skipped[@]}"
run deps/install ipvs --ignored

printf '\nfailed: %s\n' "${failed[*]:-none}"
[ ${#failed[@]} -eq 0 ]
