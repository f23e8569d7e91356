# Networks that the benchmarks compare with tweed, unless the lab has them anyway. Sourced
# by setup.sh.

build_peers() {
    # One of its backends, which is not used here, has a package in C.
    cgo=1 build_programs flanneld 4 "$conformance/peers" "$tools/bin" '-s -w' \
        flanneld=github.com/flannel-io/flannel
    # Its module has one version only.
    build_programs kube-router 4 "$conformance/kube-router" "$tools/bin" '-s -w' \
        kube-router=github.com/cloudnativelabs/kube-router/v2/cmd/kube-router
}

# The plugin's own module has no version that can be downloaded; the reference plugins
# contained it until 0.9.1.
build_flannel_plugin() {
    build_programs "flannel's CNI plugin" 1 "$conformance/flannel-cni" "$tools/bin" '-s -w' \
        flannel=github.com/containernetworking/plugins/plugins/meta/flannel
}
