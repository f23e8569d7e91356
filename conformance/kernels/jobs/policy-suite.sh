# The conformance suite of network-policy-api in a Kubernetes of two nodes, and its report. `make
# e2e ONLY=policy-suite` runs it on this machine's kernel, which may lack SCTP: then there is no
# report. Not a part of `all`: it needs `conformance/setup.sh policy-suite`, `make image`, 10 GB
# of memory and an hour or two.
set -Eeuo pipefail
tools=/project/target/tools/kubernetes
name=suite
kubectl=/project/target/cluster/$name/kubectl
log=/tmp/suite.log

# A container gets its root by pivot_root, which the kernel refuses to those whose own root is
# the one that it has unpacked at its start. So this job runs in another, with the same files.
if [ "${1:-}" != again ]; then
    mkdir /again
    mount --rbind / /again
    cd /again
    mount --move . /
    exec chroot . bash "$0" again
fi

# What nodes want and the guests' system has not.
for program in awk find hostname; do
    ln -s busybox "/usr/bin/$program"
done
mkdir -p /opt
# Each node has a /run of its own, and containerd a socket in /var/run.
ln -s /run /var/run
echo '127.0.0.1 localhost' >/etc/hosts
hostname guest
echo '+cpu +cpuset +memory +pids' >/sys/fs/cgroup/cgroup.subtree_control

# The guest, and all that is in it, ends with this job.
report() {
    $kubectl get pods --all-namespaces --output wide || true
    $kubectl get events --all-namespaces --sort-by .lastTimestamp | tail -n 60 || true
}
trap report ERR

# The definition is there before the agents, which look for it only once or twice a minute.
/project/target/release/tweed-lab cluster up --name $name --workers 1 --proxy none --bare \
    --image "$tools/policy/agnhost.tar"
$kubectl apply --server-side --filename "$tools/policy/clusternetworkpolicies.yaml"
$kubectl apply --kustomize /project/install/kustomize/without-kube-proxy
# Two of the suite's pods have the same port of the host.
$kubectl taint nodes control node-role.kubernetes.io/control-plane-
$kubectl wait --for condition=Ready nodes --all --timeout 300s
$kubectl rollout status daemonset/tweed --namespace kube-system --timeout 300s

# `version` and `repository` of tweed.
. /project/about
KUBECONFIG=/run/tweed-lab/$name/state/pki/admin.kubeconfig nsenter --net=/run/netns/$name-control \
    "$tools/policy/suite" -test.v -test.timeout 170m '-test.run=^TestConformanceProfiles$' \
    --conformance-profiles=ClusterNetworkPolicy \
    --supported-features=ClusterNetworkPolicy,ClusterNetworkPolicyNamedPorts,ClusterNetworkPolicyEgressNodePeers \
    --organization=tweed --project=tweed --version="v$version" --url="$repository" \
    --contact="$repository/issues" --additional-info="$repository/docs/policy.md" \
    --report-output=/tmp/report.yaml --cleanup-base-resources=false 2>&1 | tee $log
# Subtests are indented twice. Without any it is a failure.
printf 'subtests that passed: '
grep --count '^ \{8\}--- PASS: ' $log
# `run.sh` writes it into that file of `target`.
sed 's/^/file e2e\/network-policy-api-report.yaml: /' /tmp/report.yaml
