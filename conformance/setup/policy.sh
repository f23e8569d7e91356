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
# `suite-without-sctp` is for kernels without SCTP.
build_policy_suite() {
    local module=$conformance/policy-suite step=policy-suite inputs
    local folder=$cluster/policy
    inputs=$(cat "$module/go.mod" "$module/go.sum" "$conformance"/setup/{policy,images}.sh \
        "$tools/stamps/go-kubernetes" | sha256sum)
    if done_before "$step" "$inputs" "$folder"/{suite,suite-without-sctp,agnhost.tar}; then
        return
    fi
    find_go
    say "building the conformance suite of network-policy-api into ${cluster#"$root"/}/policy: up to 3 min (version: conformance/policy-suite/go.mod)"
    mkdir -p "$folder"
    scratch_folder
    compile_policy_suite "$folder/suite"
    sources_without_sctp "$scratch/without-sctp"
    compile_policy_suite "$folder/suite-without-sctp" -modfile "$scratch/without-sctp/go.mod"
    image_of_policy_suite "$scratch/policy-suite.root" "$folder/agnhost.tar"
    mark_done "$step" "$inputs"
}

# compile_policy_suite FILE FLAGS...
compile_policy_suite() {
    local file=$1
    shift
    run_go "$conformance/policy-suite" test -c "${build_flags[@]}" "$@" -ldflags '-s -w' -o "$file.new" \
        sigs.k8s.io/network-policy-api/conformance
    mv "$file.new" "$file"
}

# sources_without_sctp FOLDER: a copy of the suite's module without the connections by SCTP,
# and a go.mod that has Go compile it. Some tests try all protocols: what they say of TCP and
# UDP can then be shown on a kernel without SCTP.
sources_without_sctp() {
    local folder=$1 module=sigs.k8s.io/network-policy-api source file
    source=$(module_folder "$conformance/policy-suite" "$module")
    mkdir -p "$folder"
    cp -r "$source" "$folder/module"
    chmod -R u+w "$folder/module"
    for file in "$folder"/module/conformance/tests/*.go; do
        # The tests of SCTP alone are skipped by name.
        [[ $file != *-sctp-* ]] || continue
        # A call of two lines, of which the first one ends with the protocol.
        sed -i '/PokeServer(.*"sctp",$/{N;d}' "$file"
        ! grep -q '"sctp"' "$file" || fail "a connection by SCTP is left in $file"
    done
    cp "$conformance/policy-suite/go.mod" "$conformance/policy-suite/go.sum" "$folder"
    printf 'replace %s => %s\n' "$module" "$folder/module" >>"$folder/go.mod"
}

# Kubernetes' agnhost with bash. All servers of a pod must stay up for it to be Ready, but
# `porter` ends on a kernel without SCTP: the container then waits instead, and the tests of
# SCTP are skipped.
#
# By SCTP `connect` also writes and reads, while `porter` closes what it has accepted as soon as
# it has written. If `porter` is done first, as on a single processor, `connect` fails with an
# error that only a connection which was made can have. To the suite that is a connection.
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
if [ "$1" = connect ]; then
    error=$(/usr/bin/agnhost "$@" 2>&1 >/dev/null)
    status=$?
    case $error in
    "OTHER: broken pipe" | "OTHER: connection reset by peer" | "OTHER: cannot send after transport endpoint shutdown")
        [[ $* != *--protocol=sctp* ]] || exit 0
        ;;
    esac
    [ -z "$error" ] || printf '%s\n' "$error" >&2
    exit $status
fi
exec /usr/bin/agnhost "$@"
END
    chmod 755 "$folder/agnhost"
    oci_archive "$file" registry.k8s.io/e2e-test-images/agnhost:2.45 "$folder" \
        '"Entrypoint":["/agnhost"],"Cmd":["pause"]'
}
