# Network policies on three nodes: who reaches whom, before and after.
cd /project
exec target/release/tweed-lab policy
