# The table: how it is loaded, repaired and replaced, and policies by packets. Services are the
# job `services`.
skipped=(--skip services::)
# The rule of others that nft 1.0.6 cannot list is one of Linux 6.13.
case $(uname -r) in
5.10.* | 6.1.* | 6.12.*) skipped+=(--skip a_table_that_nft_cannot_list) ;;
esac
exec /project/target/release/deps/nft "${skipped[@]}"
