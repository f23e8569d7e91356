# What judges the Services. Sourced by setup.sh.

# kube-proxy's proxiers as a program: `nft/tests/reference/beside` runs it.
build_services_judge() {
    build_programs "services-judge, kube-proxy's proxiers," 4 \
        "$conformance/services-judge" "$tools/bin" '-s -w' services-judge=.
}
