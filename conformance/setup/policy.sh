# What judges and tests the policies. Sourced by setup.sh.

# kube-network-policies' evaluators as a program: `planner/tests/reference.rs` asks it.
build_policy_judge() {
    build_programs 'policy-judge, the evaluators of kube-network-policies,' 2 \
        "$conformance/policy-judge" "$tools/bin" '-s -w' policy-judge=.
}

# The definition of ClusterNetworkPolicy with its experimental fields, from the Go module
# that policy-judge pins.
unpack_policy_definition() {
    local module=$conformance/policy-judge step=policy-definition inputs folder source
    folder=$cluster/policy
    inputs=$(hash_of "$module/go.mod" "$module/go.sum")
    if done_before "$step" "$inputs" "$folder/clusternetworkpolicies.yaml"; then
        return
    fi
    find_go
    source=$(module_folder "$module" sigs.k8s.io/network-policy-api)
    mkdir -p "$folder"
    install -m 644 "$source/config/crd/experimental/policy.networking.k8s.io_clusternetworkpolicies.yaml" \
        "$folder/clusternetworkpolicies.yaml"
    mark_done "$step" "$inputs"
}

# module_folder FOLDER MODULE: the folder with the source of a module that FOLDER's go.mod
# pins. It is downloaded if it is missing.
module_folder() {
    run_go "$1" mod download "$2"
    (cd "$1" && "$go" list -mod=readonly -m -f '{{.Dir}}' "$2")
}

# The conformance suite of network-policy-api, compiled, and the image that its pods run.
build_policy_suite() {
    local module=$conformance/policy-suite step=policy-suite inputs
    local file=$cluster/policy/suite image=$cluster/policy/agnhost.tar
    inputs=$(cat "$module/go.mod" "$module/go.sum" "$conformance"/setup/{policy,images}.sh \
        "$tools/stamps/go-kubernetes" | sha256sum)
    if done_before "$step" "$inputs" "$file" "$image"; then
        return
    fi
    find_go
    say "building the conformance suite of network-policy-api into ${cluster#"$root"/}/policy: up to 3 min (version: conformance/policy-suite/go.mod)"
    mkdir -p "$cluster/policy"
    run_go "$module" test -c "${build_flags[@]}" -ldflags '-s -w' -o "$file.new" \
        sigs.k8s.io/network-policy-api/conformance
    mv "$file.new" "$file"
    scratch_folder
    image_of_policy_suite "$scratch/policy-suite.root" "$image"
    mark_done "$step" "$inputs"
}

# Kubernetes' agnhost with bash. All servers of a pod must stay up for it to be Ready, but
# `porter` ends on a kernel without SCTP: the container then waits instead, and the tests of
# SCTP are skipped.
image_of_policy_suite() {
    local folder=$1 file=$2
    base_files "$folder"
    unpack_tree "$folder" bash
    rm -rf "$folder"/usr/share/{doc,info,lintian,locale,man} "$folder"/var/lib/dpkg "$folder"/usr/lib/*/gconv
    ln -sf bash "$folder/usr/bin/sh"
    install -D "$cluster/bin/agnhost" "$folder/usr/bin/agnhost"
    cat >"$folder/agnhost" <<'END'
#!/bin/bash
if [ "$1" = porter ]; then
    /usr/bin/agnhost "$@" &
    trap 'kill $!; exit' TERM
    wait
    set -- pause
fi
exec /usr/bin/agnhost "$@"
END
    chmod 755 "$folder/agnhost"
    oci_archive "$file" registry.k8s.io/e2e-test-images/agnhost:2.45 "$folder" \
        '"Entrypoint":["/agnhost"],"Cmd":["pause"]'
}
