# The table: how it is loaded, repaired and replaced, and policies by packets. Services are the
# job `services`.
exec /project/target/release/deps/nft --skip services::
