# What the machine's own kernel may lack: IPVS, SCTP and netem beside tweed.
exec /project/target/release/deps/overlay --ignored
