# The demo alone.
cd /project
exec target/release/tweed-lab demo
