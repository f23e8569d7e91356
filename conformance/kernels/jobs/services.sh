# Services in the table, by packets; SCTP and IPVS too, which this machine's kernel may lack.
set -e
# Hundreds of thousands of elements that are written under a storm of connections take more
# than half an hour in an emulator.
/project/target/release/deps/nft services:: --include-ignored --skip cost:: \
    --skip no_client_is_refused_that_old_and_new_source_ranges_allow
exec /project/target/release/deps/install ipvs --ignored
