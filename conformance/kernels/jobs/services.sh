# Services in the table, by packets; SCTP and IPVS too, which this machine's kernel may lack.
set -e
/project/target/release/deps/nft services:: --include-ignored --skip cost::
exec /project/target/release/deps/install ipvs --ignored
