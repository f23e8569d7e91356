# Services in the table, by packets; SCTP and IPVS too, which this machine's kernel may lack.
set -e
# Hundreds of thousands of elements that are written under a storm of connections take more
# than half an hour in an emulator.
skipped=(--skip cost:: --skip no_client_is_refused_that_old_and_new_source_ranges_allow)
# There no translated flow is answered that a route leads into a VRF, by whatever rules.
[[ $(uname -r) != 5.10.* ]] || skipped+=(--skip a_flow_that_is_led_into_a_vrf)
/project/target/release/deps/nft services:: --include-ignored "${skipped[@]}"
exec /project/target/release/deps/install ipvs --ignored
