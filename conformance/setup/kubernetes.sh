# What a Kubernetes cluster runs, and what checks its manifests. Sourced by setup.sh.
#
# All from pinned Go modules but runc, which needs C libraries to build and comes
# from Debian. Built one after the other: each build takes all processors by itself.

modules=$conformance/kubernetes
cluster=$tools/kubernetes
components=(kube-apiserver kube-controller-manager kube-proxy kube-scheduler kubectl kubelet)

# Free room in GB that the first build of everything takes, in the folders of
# `warn_of_little_room` together.
room_gb=10

# Says beforehand where a first build is going to run out of room.
warn_of_little_room() {
    [ ! -e "$cluster/bin/kubernetes" ] || return 0
    find_go
    local cache modules_cache folder free
    cache=$(cd / && "$go" env GOCACHE)
    modules_cache=$(cd / && "$go" env GOMODCACHE)
    for folder in "$modules_cache" "$cache" "$tools"; do
        mkdir -p "$folder"
    done
    while read -r free folder; do
        [ "$free" -ge "$room_gb" ] ||
            say "only $free GB free at $folder: the first build takes up to $room_gb GB in all, in $modules_cache, $cache and $tools (GOMODCACHE and GOCACHE move the first two)"
    done < <(df --block-size=1G --output=avail,target "$modules_cache" "$cache" "$tools" | tail -n +2 | sort --unique)
}

build_kubernetes() {
    local folder=$modules/kubernetes version linker='-s -w' package component
    version=$(module_version "$folder" k8s.io/kubernetes)
    # A kubelet and an API server that do not know their version do not fit each other.
    for package in k8s.io/client-go/pkg/version k8s.io/component-base/version; do
        linker+=" -X $package.gitVersion=v$version"
        linker+=" -X $package.gitMajor=${version%%.*} -X $package.gitMinor=$(cut -d . -f 2 <<<"$version")"
    done
    build_programs 'Kubernetes, all components in one program,' 6 \
        "$folder" "$cluster/bin" "$linker" kubernetes=. \
        agnhost=k8s.io/kubernetes/test/images/agnhost
    for component in "${components[@]}"; do
        ln -sfn kubernetes "$cluster/bin/$component"
    done
}

build_cluster() {
    build_kubernetes
    local containerd=github.com/containerd/containerd/v2/cmd
    build_programs etcd 1 "$modules/etcd" "$cluster/bin" '-s -w' \
        etcd=go.etcd.io/etcd/server/v3
    build_programs containerd 2 "$modules/containerd" "$cluster/bin" '-s -w' \
        "containerd=$containerd/containerd" \
        "containerd-shim-runc-v2=$containerd/containerd-shim-runc-v2" \
        "ctr=$containerd/ctr"
    build_programs CoreDNS 2 "$modules/coredns" "$cluster/bin" '-s -w' \
        coredns=github.com/coredns/coredns
    unpack_runc
}

unpack_runc() {
    done_before runc 1 "$cluster/bin/runc" && return
    say "unpacking Debian's runc into target/tools/kubernetes/bin"
    scratch_folder
    unpack_packages "$scratch/runc" runc
    install -D "$scratch/runc/usr/sbin/runc" "$cluster/bin/runc"
    "$cluster/bin/runc" --version >/dev/null ||
        fail "Debian's runc does not run here: is its library there (apt-get install libseccomp2)?"
    mark_done runc 1
}

build_helm() {
    build_programs helm 2 "$modules/helm" "$tools/bin" '-s -w' \
        helm=helm.sh/helm/v4/cmd/helm
}

unpack_promtool() {
    done_before promtool 1 "$tools/bin/promtool" && return
    say "unpacking promtool of Debian's prometheus into target/tools/bin"
    scratch_folder
    unpack_packages "$scratch/prometheus" prometheus
    install -D "$scratch/prometheus/usr/bin/promtool" "$tools/bin/promtool"
    mark_done promtool 1
}
