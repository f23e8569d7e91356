# The programs of the container image, with nothing but its files. Not a part of `all`: it
# needs `make image` for the guest's processor.
set -e
in_image() { chroot /project/image "$@"; }

in_image /usr/bin/tweed-agent --version
in_image /usr/bin/tweed-install --version
in_image /usr/bin/tweedctl --version
for plugin in tweed tweed-ipam; do
    CNI_COMMAND=VERSION in_image "/opt/tweed/bin/$plugin" <<<'{"cniVersion":"1.1.0"}'
done
(cd /project/image/opt/tweed/bin && sha256sum --check SHA256SUMS)

in_image /usr/sbin/nft --version
in_image /usr/sbin/nft -f - <<'TABLE'
table inet of_the_image {
    set ports {
        typeof udp dport
        elements = { 8472 }
    }
}
TABLE
# With the guest's nft, which did not load it.
nft list table inet of_the_image | grep 8472
