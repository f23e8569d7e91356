# Services in the table `inet tweed`, by packets; SCTP too, which this machine's kernel may lack.
exec /project/target/release/deps/nft services:: --include-ignored --skip cost::
