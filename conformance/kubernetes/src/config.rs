//! The configs and arguments of all programs. All programs but containerd read YAML,
//! of which JSON is a subset.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use crate::pki::node_file;
use crate::spec::{
    NodeSpec, POD_CIDR, POD_CIDR_IPV6, ProxyMode, SERVICE_CIDR, SERVICE_CIDR_IPV6, SERVICE_OF_DNS,
};

/// The image of the container that holds a pod's namespaces.
const PAUSE: &str = "registry.k8s.io/pause:3.10.1";

/// Maximum number of pods of a node: more than the 100 of the largest test, and
/// fewer than the addresses of a /24.
const MAX_PODS: u32 = 250;

/// The folder of a node's certificates and configs.
pub(crate) const NODE_FOLDER: &str = "/etc/kubernetes";

/// The folder from which kubelet runs pods without an API server.
pub const STATIC_PODS: &str = "/etc/kubernetes/manifests";

/// containerd's socket in a node.
pub(crate) const CONTAINERD_SOCKET: &str = "/run/containerd/containerd.sock";

/// The sysctls that kubelet requires and otherwise writes for the whole machine:
/// path below `/proc`, and value.
pub(crate) const KUBELET_SYSCTLS: &[(&str, &str)] = &[
    ("sys/kernel/keys/root_maxbytes", "25000000"),
    ("sys/kernel/keys/root_maxkeys", "1000000"),
    ("sys/kernel/panic", "10"),
    ("sys/kernel/panic_on_oops", "1"),
    ("sys/vm/overcommit_memory", "1"),
    ("sys/vm/panic_on_oom", "0"),
];

/// containerd's config. `base_spec` is a file with the OCI spec of which every
/// container starts; `None` means containerd's default.
pub(crate) fn containerd(runc: &Path, base_spec: Option<&Path>) -> String {
    let runc = runc.display();
    let spec_line = base_spec.map_or_else(String::new, |file| {
        format!("  base_runtime_spec = \"{}\"\n", file.display())
    });
    format!(
        r#"version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = "{CONTAINERD_SOCKET}"
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{PAUSE}"
[plugins."io.containerd.cri.v1.runtime"]
  # Lowering a score needs CAP_SYS_RESOURCE, which not every machine gives.
  restrict_oom_score_adj = true
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
{spec_line}[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
  BinaryName = "{runc}"
  SystemdCgroup = false
[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = ["/opt/cni/bin"]
  conf_dir = "/etc/cni/net.d"
"#
    )
}

/// kubelet's config.
pub(crate) fn kubelet(node: &NodeSpec) -> Value {
    let file = node_file(&node.name);
    let mut config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": { "enabled": false },
            "webhook": { "enabled": true },
            "x509": { "clientCAFile": format!("{NODE_FOLDER}/ca.crt") },
        },
        "authorization": { "mode": "Webhook" },
        "tlsCertFile": format!("{NODE_FOLDER}/{file}.crt"),
        "tlsPrivateKeyFile": format!("{NODE_FOLDER}/{file}.key"),
        "containerRuntimeEndpoint": format!("unix://{CONTAINERD_SOCKET}"),
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": false,
        "clusterDNS": [SERVICE_OF_DNS],
        "clusterDomain": "cluster.local",
        // A node cannot reach the machine's name servers.
        "resolvConf": "",
        "maxPods": MAX_PODS,
        "serializeImagePulls": false,
        "nodeStatusUpdateFrequency": "4s",
        "syncFrequency": "10s",
        "staticPodPath": STATIC_PODS,
        // Images come from archives and cannot be pulled again, and tests must not
        // depend on how full the machine is.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {
            "imagefs.available": "1%",
            "memory.available": "50Mi",
            "nodefs.available": "1%",
            "nodefs.inodesFree": "1%",
        },
        "failSwapOn": false,
    });
    if node.is_control() {
        config["registerWithTaints"] = json!([
            { "key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule" }
        ]);
    }
    config
}

/// kube-proxy's config; `None` if it must not run.
pub(crate) fn kube_proxy(node: &NodeSpec, mode: ProxyMode, dual_stack: bool) -> Option<Value> {
    Some(json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": mode.name()?,
        "clientConnection": { "kubeconfig": format!("{NODE_FOLDER}/kube-proxy.kubeconfig") },
        "clusterCIDR": ranges(POD_CIDR, POD_CIDR_IPV6, dual_stack),
        "hostnameOverride": node.name,
        // These sysctls cannot be written in a network namespace.
        "conntrack": {
            "maxPerCore": 0,
            "tcpCloseWaitTimeout": "0s",
            "tcpEstablishedTimeout": "0s",
        },
    }))
}

/// The arguments of etcd.
pub(crate) fn etcd(data: &Path) -> Vec<String> {
    vec![
        format!("--data-dir={}", data.display()),
        // Its data is in memory.
        "--unsafe-no-fsync".to_owned(),
        "--listen-client-urls=http://127.0.0.1:2379".to_owned(),
        "--advertise-client-urls=http://127.0.0.1:2379".to_owned(),
        "--listen-peer-urls=http://127.0.0.1:2380".to_owned(),
        "--initial-advertise-peer-urls=http://127.0.0.1:2380".to_owned(),
        "--initial-cluster=default=http://127.0.0.1:2380".to_owned(),
    ]
}

/// What the API server writes into its audit log: every request of tweed's agents, when it
/// has been answered or, for a watch, when the answer begins.
pub(crate) fn audit_policy() -> Value {
    json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            { "level": "Metadata", "users": ["system:serviceaccount:kube-system:tweed"] },
            { "level": "None" },
        ],
    })
}

/// The files of the API server's audit log.
#[derive(Debug, Clone)]
pub(crate) struct Audit {
    /// [`audit_policy`].
    pub(crate) policy: PathBuf,
    /// The log: a JSON object a line.
    pub(crate) log: PathBuf,
}

/// A range of addresses, or with that of IPv6 two.
fn ranges(ipv4: &str, ipv6: &str, dual_stack: bool) -> String {
    if dual_stack {
        format!("{ipv4},{ipv6}")
    } else {
        ipv4.to_owned()
    }
}

fn service_ranges(dual_stack: bool) -> String {
    let ranges = ranges(SERVICE_CIDR, SERVICE_CIDR_IPV6, dual_stack);
    format!("--service-cluster-ip-range={ranges}")
}

/// The arguments of kube-apiserver. `file` returns the path of a certificate's file.
pub(crate) fn api_server(
    node: &NodeSpec,
    audit: &Audit,
    dual_stack: bool,
    file: &dyn Fn(&str) -> String,
) -> Vec<String> {
    vec![
        format!("--audit-policy-file={}", audit.policy.display()),
        format!("--audit-log-path={}", audit.log.display()),
        "--etcd-servers=http://127.0.0.1:2379".to_owned(),
        format!("--advertise-address={}", node.address),
        format!("--secure-port={}", super::spec::API_PORT),
        "--allow-privileged".to_owned(),
        "--authorization-mode=Node,RBAC".to_owned(),
        "--enable-admission-plugins=NodeRestriction".to_owned(),
        format!("--client-ca-file={}", file("ca.crt")),
        format!("--tls-cert-file={}", file("apiserver.crt")),
        format!("--tls-private-key-file={}", file("apiserver.key")),
        format!("--kubelet-certificate-authority={}", file("ca.crt")),
        format!(
            "--kubelet-client-certificate={}",
            file("apiserver-to-kubelet.crt")
        ),
        format!("--kubelet-client-key={}", file("apiserver-to-kubelet.key")),
        "--kubelet-preferred-address-types=InternalIP".to_owned(),
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local".to_owned(),
        format!(
            "--service-account-key-file={}",
            file("service-accounts.pub")
        ),
        format!(
            "--service-account-signing-key-file={}",
            file("service-accounts.key")
        ),
        service_ranges(dual_stack),
    ]
}

/// What tests change of kube-controller-manager.
#[derive(Debug)]
pub(crate) struct Controllers {
    /// Whether it allocates pod CIDRs to new Nodes.
    pub(crate) allocates: bool,
    /// The time without a word of a kubelet after which its Node is no longer Ready.
    pub(crate) node_grace: Option<Duration>,
}

impl Default for Controllers {
    fn default() -> Self {
        Self {
            allocates: true,
            node_grace: None,
        }
    }
}

/// The arguments of kube-controller-manager.
pub(crate) fn controller_manager(
    file: &dyn Fn(&str) -> String,
    how: &Controllers,
    dual_stack: bool,
) -> Vec<String> {
    let mut arguments = api_client_arguments(&file("controller-manager.kubeconfig"));
    arguments.extend([
        "--use-service-account-credentials".to_owned(),
        format!("--root-ca-file={}", file("ca.crt")),
        format!(
            "--service-account-private-key-file={}",
            file("service-accounts.key")
        ),
        format!("--cluster-signing-cert-file={}", file("ca.crt")),
        format!("--cluster-signing-key-file={}", file("ca.key")),
        format!("--allocate-node-cidrs={}", how.allocates),
        // Each node gets a /24, and a /64 of IPv6: the defaults.
        format!(
            "--cluster-cidr={}",
            ranges(POD_CIDR, POD_CIDR_IPV6, dual_stack)
        ),
        service_ranges(dual_stack),
    ]);
    if let Some(grace) = how.node_grace {
        let seconds = grace.as_secs();
        arguments.push(format!("--node-monitor-grace-period={seconds}s"));
    }
    arguments
}

/// The arguments of kube-scheduler.
pub(crate) fn scheduler(file: &dyn Fn(&str) -> String) -> Vec<String> {
    api_client_arguments(&file("scheduler.kubeconfig"))
}

/// The arguments of every client of the API server in the control plane.
fn api_client_arguments(kubeconfig: &str) -> Vec<String> {
    vec![
        format!("--kubeconfig={kubeconfig}"),
        format!("--authentication-kubeconfig={kubeconfig}"),
        format!("--authorization-kubeconfig={kubeconfig}"),
        "--bind-address=127.0.0.1".to_owned(),
        // There is only one instance, which after a restart would have to wait until
        // the old lease has expired.
        "--leader-elect=false".to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(file: &str) -> String {
        format!("/pki/{file}")
    }

    #[test]
    fn only_the_control_plane_node_is_tainted() {
        let worker = NodeSpec::worker(1).unwrap();
        assert_eq!(kubelet(&worker)["registerWithTaints"], Value::Null);
        let taint = &kubelet(&NodeSpec::control())["registerWithTaints"][0];
        assert_eq!(taint["key"], "node-role.kubernetes.io/control-plane");
    }

    #[test]
    fn kube_proxy_runs_in_the_given_mode() {
        let node = NodeSpec::control();
        for mode in [ProxyMode::Tweed, ProxyMode::None] {
            assert_eq!(kube_proxy(&node, mode, false), None);
        }
        let config = kube_proxy(&node, ProxyMode::Iptables, false).unwrap();
        assert_eq!(config["mode"], "iptables");
        assert_eq!(config["hostnameOverride"], "control");
    }

    #[test]
    fn containerd_uses_a_base_spec_only_if_there_is_one() {
        let runc = Path::new("/tools/runc");
        assert!(!containerd(runc, None).contains("base_runtime_spec"));
        let text = containerd(runc, Some(Path::new("/etc/containerd/base.json")));
        let line = "  base_runtime_spec = \"/etc/containerd/base.json\"\n[plugins.";
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn tokens_are_signed_and_verified_with_one_key_pair() {
        let audit = Audit {
            policy: PathBuf::from("/audit.json"),
            log: PathBuf::from("/audit.log"),
        };
        let api = api_server(&NodeSpec::control(), &audit, false, &path).join(" ");
        let manager = controller_manager(&path, &Controllers::default(), false).join(" ");
        assert!(
            api.contains("signing-key-file=/pki/service-accounts.key"),
            "{api}"
        );
        assert!(
            api.contains("account-key-file=/pki/service-accounts.pub"),
            "{api}"
        );
        assert!(
            manager.contains("private-key-file=/pki/service-accounts.key"),
            "{manager}"
        );
    }
}
