# What the machine's own kernel may lack: IPVS, SCTP and netem beside tweed. Of the tests that
# are left out elsewhere, a thousand ADDs under floods are no matter of the kernel's parts and
# take too long in an emulator.
exec /project/target/release/deps/overlay --ignored --skip in_a_thousand_adds
