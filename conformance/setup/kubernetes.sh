# The programs of a Kubernetes cluster, and those that check its manifests. Sourced by
# setup.sh.
#
# All are built from pinned Go modules, except runc, whose build needs C libraries and
# which comes from Debian. They are built one after the other, because each build uses all
# processors.

modules=$conformance/kubernetes
cluster=$tools/kubernetes
components=(kube-apiserver kube-controller-manager kube-proxy kube-scheduler kubectl kubelet)

# Disk space in GB that the first build of everything needs, in all folders of
# `warn_of_little_room` together.
room_gb=10

# Warns if there is not enough disk space for a first build.
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
    local folder=$modules/kubernetes version
    version=$(module_version "$folder" k8s.io/kubernetes)
    build_programs 'Kubernetes, all components in one program,' 6 \
        "$folder" "$cluster/bin" "$(linker_flags "$version")" kubernetes=. \
        agnhost=k8s.io/kubernetes/test/images/agnhost
    link_components "$cluster/bin"
}

# The same of each version in `other-versions`, except what runs in pods, which stays the
# same. Each has a folder of its own below versions/.
build_other_versions() {
    local folders folder version bin
    # There may be none. A name with a dot in front is a draft of `add.sh`.
    mapfile -t folders < <(find "$modules/other-versions" -mindepth 1 -maxdepth 1 -type d ! -name '.*' | sort)
    for folder in "${folders[@]}"; do
        version=$(basename "$folder")
        bin=$cluster/versions/$version/bin
        build_programs "Kubernetes $version" 6 "$folder" "$bin" "$(linker_flags "$version")" kubernetes=.
        link_components "$bin"
    done
}

# kubelet and API server compare their versions, which are set at build time.
linker_flags() {
    local version=$1 flags='-s -w' package
    for package in k8s.io/client-go/pkg/version k8s.io/component-base/version; do
        flags+=" -X $package.gitVersion=v$version"
        flags+=" -X $package.gitMajor=${version%%.*} -X $package.gitMinor=$(cut -d . -f 2 <<<"$version")"
    done
    printf '%s\n' "$flags"
}

link_components() {
    local component
    for component in "${components[@]}"; do
        ln -sfn kubernetes "$1/$component"
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
    # One Go module, because both use the client libraries of Kubernetes, which are then
    # compiled only once.
    build_programs 'CoreDNS and helm' 3 "$modules/clients" "$cluster/bin" '-s -w' \
        coredns=./coredns \
        helm=helm.sh/helm/v4/cmd/helm
    ln -sfn ../kubernetes/bin/helm "$tools/bin/helm"
    unpack_runc
}

unpack_runc() {
    done_before runc 1 "$cluster/bin/runc" && return
    say "unpacking Debian's runc into ${tools#"$root"/}/kubernetes/bin"
    scratch_folder
    unpack_packages "$scratch/runc" runc
    install -D "$scratch/runc/usr/sbin/runc" "$cluster/bin/runc"
    "$cluster/bin/runc" --version >/dev/null ||
        fail "Debian's runc does not run here: is its library installed (apt-get install libseccomp2)?"
    mark_done runc 1
}

unpack_promtool() {
    done_before promtool 1 "$tools/bin/promtool" && return
    say "unpacking promtool of Debian's prometheus into ${tools#"$root"/}/bin"
    scratch_folder
    unpack_packages "$scratch/prometheus" prometheus
    install -D "$scratch/prometheus/usr/bin/promtool" "$tools/bin/promtool"
    mark_done promtool 1
}
