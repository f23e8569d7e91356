# What tweed is measured beside, where the lab does not have it anyway. Sourced by
# setup.sh.

build_peers() {
    # A backend of it that is not used has a part in C.
    cgo=1 build_programs flanneld 4 "$conformance/peers" "$tools/bin" '-s -w' \
        flanneld=github.com/flannel-io/flannel
}
