//! What a real Node says beside what a pod network asks of it: it is most of
//! its bytes, and a decoder has to get past it.

use std::net::Ipv4Addr;

use serde_json::{Value, json};

const IMAGES: usize = 50;

/// Labels of the Node of this name.
pub fn labels(name: &str) -> [(String, String); 15] {
    let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    [
        label("beta.kubernetes.io/arch", "amd64"),
        label("beta.kubernetes.io/os", "linux"),
        label("kubernetes.io/arch", "amd64"),
        label("kubernetes.io/os", "linux"),
        label("kubernetes.io/hostname", name),
        label("node.kubernetes.io/instance-type", "m7i.4xlarge"),
        label("beta.kubernetes.io/instance-type", "m7i.4xlarge"),
        label("topology.kubernetes.io/region", "region-north-1"),
        label("topology.kubernetes.io/zone", "region-north-1b"),
        label("failure-domain.beta.kubernetes.io/region", "region-north-1"),
        label("failure-domain.beta.kubernetes.io/zone", "region-north-1b"),
        label("node-role.kubernetes.io/worker", ""),
        label("fleet.example.com/pool", "general-purpose"),
        label("fleet.example.com/image", "debian-13-20260101"),
        label("fleet.example.com/team", "platform"),
    ]
}

/// Annotations of the Node of this UID and address: those of flannel too, which
/// passes over Nodes that have none.
pub fn annotations(uid: &str, address: Ipv4Addr) -> [(String, String); 8] {
    let [a, b, c, d] = address.octets();
    let mac = format!("0e:fa:{a:02x}:{b:02x}:{c:02x}:{d:02x}");
    [
        ("node.alpha.kubernetes.io/ttl", "300".to_owned()),
        (
            "volumes.kubernetes.io/controller-managed-attach-detach",
            "true".to_owned(),
        ),
        (
            "csi.volume.kubernetes.io/nodeid",
            format!(r#"{{"disk.csi.example.com":"{uid}"}}"#),
        ),
        (
            "fleet.example.com/provisioned-by",
            "machine-controller/v1".to_owned(),
        ),
        (
            "flannel.alpha.coreos.com/backend-data",
            format!(r#"{{"VNI":1,"VtepMAC":"{mac}"}}"#),
        ),
        ("flannel.alpha.coreos.com/backend-type", "vxlan".to_owned()),
        (
            "flannel.alpha.coreos.com/kube-subnet-manager",
            "true".to_owned(),
        ),
        ("flannel.alpha.coreos.com/public-ip", address.to_string()),
    ]
    .map(|(key, value)| (key.to_owned(), value))
}

/// Images: a name by digest and one by tag, and the size in bytes.
pub fn images() -> impl Iterator<Item = ([String; 2], u64)> {
    (0..IMAGES).map(|image| {
        let repository = format!("r.example.com/service-{image:02}");
        let digest = format!("{image:02x}").repeat(32);
        (
            [
                format!("{repository}@sha256:{digest}"),
                format!("{repository}:v1.{image}.{}", image * 3),
            ],
            40_000_000 + 1_234_567 * image as u64,
        )
    })
}

/// Conditions before the kubelet's.
const OTHERS: usize = 6;

/// Conditions: type, status, reason, message. Those of the kubelet, of the
/// network, and of a node problem detector.
pub const CONDITIONS: [[&str; 4]; 10] = [
    [
        "NetworkUnavailable",
        "False",
        "NetworkIsUp",
        "the pod network is running on this node",
    ],
    [
        "KernelDeadlock",
        "False",
        "KernelHasNoDeadlock",
        "kernel has no deadlock",
    ],
    [
        "ReadonlyFilesystem",
        "False",
        "FilesystemIsNotReadOnly",
        "Filesystem is not read-only",
    ],
    [
        "CorruptDockerOverlay2",
        "False",
        "NoCorruptDockerOverlay2",
        "docker overlay2 is functioning properly",
    ],
    [
        "FrequentKubeletRestart",
        "False",
        "NoFrequentKubeletRestart",
        "kubelet is functioning properly",
    ],
    [
        "FrequentContainerdRestart",
        "False",
        "NoFrequentContainerdRestart",
        "containerd is functioning properly",
    ],
    [
        "MemoryPressure",
        "False",
        "KubeletHasSufficientMemory",
        "kubelet has sufficient memory available",
    ],
    [
        "DiskPressure",
        "False",
        "KubeletHasNoDiskPressure",
        "kubelet has no disk pressure",
    ],
    [
        "PIDPressure",
        "False",
        "KubeletHasSufficientPID",
        "kubelet has sufficient PID available",
    ],
    [
        "Ready",
        "True",
        "KubeletReady",
        "kubelet is posting ready status",
    ],
];

/// Those of the kubelet, which it writes again with each heartbeat.
pub fn kubelet_conditions() -> &'static [[&'static str; 4]] {
    CONDITIONS.split_at(OTHERS).1
}

/// Capacity, and what of it pods may have.
pub const RESOURCES: [(&str, &str); 7] = [
    ("cpu", "16"),
    ("ephemeral-storage", "209702892Ki"),
    ("hugepages-1Gi", "0"),
    ("hugepages-2Mi", "0"),
    ("memory", "64832112Ki"),
    ("pods", "110"),
    ("example.com/accelerator", "0"),
];

/// `nodeInfo`, in the order of its protobuf fields.
pub const INFO: [(&str, &str); 10] = [
    ("machineID", "ec2f3b0a5f7c4f4b9a0b0b6f4b1c2d3e"),
    ("systemUUID", "ec2f3b0a-5f7c-4f4b-9a0b-0b6f4b1c2d3e"),
    ("bootID", "7f6f5f3e-3f0d-4a57-9e2b-1a2b3c4d5e6f"),
    ("kernelVersion", "6.12.43-cloud-amd64"),
    ("osImage", "Debian GNU/Linux 13 (trixie)"),
    ("containerRuntimeVersion", "containerd://2.2.1"),
    ("kubeletVersion", "v1.35.4"),
    ("kubeProxyVersion", ""),
    ("operatingSystem", "linux"),
    ("architecture", "amd64"),
];

/// Runtime handlers: each can do what there is to be done.
pub const HANDLERS: [&str; 4] = ["", "runc", "gvisor", "kata"];

/// What server-side apply remembers: manager, subresource, the fields that it
/// wrote.
pub fn managed(labels: &[(String, String)]) -> [(&'static str, &'static str, Value); 5] {
    let fields = |keys: &[String]| -> Value {
        keys.iter()
            .map(|key| (format!("f:{key}"), json!({})))
            .collect()
    };
    let conditions = |kinds: &[[&str; 4]]| -> Value {
        kinds
            .iter()
            .map(|[kind, ..]| {
                let key = format!(r#"k:{{"type":"{kind}"}}"#);
                let value = json!({
                    ".": {}, "f:lastHeartbeatTime": {}, "f:lastTransitionTime": {},
                    "f:message": {}, "f:reason": {}, "f:status": {}, "f:type": {},
                });
                (key, value)
            })
            .collect()
    };
    let labels: Vec<String> = labels.iter().map(|(key, _)| key.clone()).collect();
    let resources = RESOURCES.map(|(key, _)| key.to_owned());
    let (network, problems) = CONDITIONS.split_at(OTHERS).0.split_at(1);
    [
        (
            "kubelet",
            "",
            json!({"f:metadata": {"f:annotations": {".": {}}, "f:labels": fields(&labels)},
                "f:spec": {"f:providerID": {}}}),
        ),
        (
            "kube-controller-manager",
            "",
            json!({"f:spec": {"f:podCIDR": {}, "f:podCIDRs": {".": {}, "v:\"10.0.0.0/24\"": {}}}}),
        ),
        (
            "network-agent",
            "status",
            json!({"f:status": {"f:conditions": conditions(network)}}),
        ),
        (
            "node-problem-detector",
            "status",
            json!({"f:status": {"f:conditions": conditions(problems)}}),
        ),
        (
            "kubelet",
            "status",
            json!({"f:status": {"f:allocatable": fields(&resources), "f:capacity": fields(&resources),
                "f:conditions": conditions(kubelet_conditions()), "f:images": {},
                "f:nodeInfo": fields(&INFO.map(|(key, _)| key.to_owned())),
                "f:runtimeHandlers": {}}}),
        ),
    ]
}

/// Such pairs as a JSON object.
pub fn text_map<K: AsRef<str>, V: AsRef<str>>(entries: &[(K, V)]) -> Value {
    entries
        .iter()
        .map(|(key, value)| (key.as_ref().to_owned(), Value::from(value.as_ref())))
        .collect()
}

/// As the API writes times: RFC 3339 in UTC. Days by the civil calendar
/// (Hinnant, "chrono-compatible low-level date algorithms").
pub fn timestamp(seconds: u64) -> String {
    let (days, time) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
        time / 3600,
        time / 60 % 60,
        time % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_the_api_writes_them() {
        assert_eq!(timestamp(0), "1970-01-01T00:00:00Z");
        assert_eq!(timestamp(1_795_255_200), "2026-11-21T10:00:00Z");
        assert_eq!(timestamp(1_709_208_000), "2024-02-29T12:00:00Z");
    }
}
