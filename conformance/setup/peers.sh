# What tweed is measured beside, where the lab does not have it anyway. Sourced by
# setup.sh.

build_peers() {
    # A backend of it that is not used has a part in C.
    cgo=1 build_programs flanneld 4 "$conformance/peers" "$tools/bin" '-s -w' \
        flanneld=github.com/flannel-io/flannel
}

# Of the plugin's own module no version can be had; the reference plugins had it
# until 0.9.1.
build_flannel_plugin() {
    build_programs "flannel's CNI plugin" 1 "$conformance/flannel-cni" "$tools/bin" '-s -w' \
        flannel=github.com/containernetworking/plugins/plugins/meta/flannel
}
