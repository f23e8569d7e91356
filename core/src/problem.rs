//! What can be wrong with a node: [`ProblemKind`] lists every kind with what is
//! always the same about it, and a [`Problem`] is one occurrence. A problem is
//! reported in the log, in `/readyz`, in `agent.json`, in the metrics, with a
//! Kubernetes source in an Event, and by `tweed-install check`.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What a problem does to the pods of this node. Ordered: the worst decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// Pods are served; a person should know all the same.
    Warning,
    /// New pods cannot be served: not ready, STATUS 50.
    NewPods,
    /// Running pods are affected too: not ready, STATUS 51.
    RunningPods,
}

/// Which object a kind of problem is about. It decides whether Kubernetes is
/// informed of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The agent's knowledge of the Nodes, of policies and of Services: not known yet, or
    /// not readable. The network itself may be in order.
    Source,
    /// The own Node object.
    OwnNode,
    /// Any Node object, or several: the own one, or another one, which reports it itself. What
    /// every node finds of the same Nodes is reported by none.
    AnyNode,
    /// A NetworkPolicy or ClusterNetworkPolicy.
    Policy,
    /// A Service. Every node finds the same, so none reports it.
    Service,
    /// What the API server lets the agent read.
    Rights,
    /// This machine: its kernel, files and programs.
    Host,
    /// The reports to Kubernetes themselves.
    Reports,
}

macro_rules! problem_kinds {
    ($($(#[doc = $meaning:literal])+ $kind:ident, $word:literal, $scope:ident, $effect:ident, $cure:literal;)+) => {
        /// A kind of problem. In the order of [`ProblemKind::word`].
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum ProblemKind {
            $($(#[doc = $meaning])+ #[serde(rename = $word)] $kind,)+
        }

        impl ProblemKind {
            /// Every kind.
            pub const ALL: &[Self] = &[$(Self::$kind),+];

            const fn facts(self) -> Facts {
                match self {
                    $(Self::$kind => Facts {
                        word: $word,
                        reason: stringify!($kind),
                        scope: Scope::$scope,
                        effect: Effect::$effect,
                        cure: $cure,
                    },)+
                }
            }
        }
    };
}

/// What is the same for all problems of a kind.
struct Facts {
    word: &'static str,
    reason: &'static str,
    scope: Scope,
    effect: Effect,
    cure: &'static str,
}

// Kind, fixed word, scope, default effect, default cure.
problem_kinds! {
    /// The agent reads another boot ID than the plugin.
    BootIdMismatch, "boot-id-mismatch", Host, Warning,
        "mount the node's /proc/sys/kernel/random/boot_id into the agent's container, as install/tweed.yaml does, and name it with --boot-id-file";
    /// Something could not be looked at (`tweed-install check` only).
    CheckIncomplete, "check-incomplete", Host, Warning,
        "run it as root";
    /// Nothing says which ranges pods have, and the Nodes' ranges are not all in one private range.
    ClusterCidrUnset, "cluster-cidr-unset", AnyNode, Warning,
        "give --cluster-cidr the ranges that the Nodes' pod CIDRs are taken from: then a Node with any other is refused";
    /// A CNI config that tweed or the runtime cannot use as it is (`tweed-install check` only).
    CniConfigInvalid, "cni-config-invalid", Host, NewPods,
        "correct it: docs/cni-config.md describes every key";
    /// Flows to Services that lead to no endpoint cannot be removed from conntrack.
    Conntrack, "conntrack", Host, Warning,
        "mend what it names; the agent tries again by itself, and until then clients that keep sending from one socket may reach an endpoint that is gone";
    /// With `--fast-path on`: established flows do not skip the host's stack.
    FastPathOff, "fast-path-off", Host, Warning,
        "mend what it names, or set --fast-path to auto; it is tried again every minute, and all packets take the kernel's path until then";
    /// A file that others read cannot be written.
    FileUnwritable, "file-unwritable", Host, NewPods,
        "let the agent write there, or name another folder; it is tried again";
    /// A table of somebody else drops packets of pods.
    ForwardDrop, "forward-drop", Host, Warning,
        "let the chain accept packets from and to links whose name begins with tw";
    /// The kernel does not forward what arrives on a link of somebody else.
    ForwardingOff, "forwarding-off", Host, Warning,
        "set the sysctl to 1, and correct what sets it to 0";
    /// The link of direct routes does not lead to their Nodes any more, and the plan is held.
    GatewayNotOnLink, "gateway-not-on-link", Host, Warning,
        "bring back the node's address and its network on that link, or mend what else is named: the next plan replaces these routes";
    /// The address for probes cannot be listened on.
    HealthAddr, "health-addr", Host, Warning,
        "free the port, or give --health-addr and the probes another address; it is tried again every second";
    /// A firewall drops the VXLAN packets of other nodes.
    InboundDrop, "inbound-drop", Host, Warning,
        "let the VXLAN port in from the other nodes";
    /// The kernel lacks something that tweed uses (`tweed-install check` only).
    KernelFeatureMissing, "kernel-feature-missing", Host, NewPods,
        "load the module, or install a kernel that has it";
    /// The kernel does not answer over rtnetlink.
    KernelUnreadable, "kernel-unreadable", Host, NewPods,
        "the agent tries again by itself; if it stays, see what else the kernel's log says";
    /// The kernel is too old, or its version is not known (`tweed-install check` only).
    KernelUnsupported, "kernel-unsupported", Host, NewPods,
        "install a newer kernel";
    /// Rules of kube-proxy are on a node whose agent serves Services.
    KubeProxyRules, "kube-proxy-rules", Host, Warning,
        "once kube-proxy has left this node, run `tweed-install remove-kube-proxy` there; if it is to stay, set --services to off (docs/services.md)";
    /// A program that manages links or routes may change those of tweed (`tweed-install check` only).
    LinkManager, "link-manager", Host, Warning,
        "tell it to leave links whose name begins with tw alone";
    /// The agent's loop has not run for a long time.
    LoopStuck, "loop-stuck", Host, Warning,
        "end the agent, so that it is started again, and report what its log says; nothing is repaired or followed until then";
    /// The address for metrics cannot be listened on.
    MetricsAddr, "metrics-addr", Host, Warning,
        "free the port, or give --metrics-addr another address; it is tried again every second";
    /// The API server refuses to review who may read metrics.
    MetricsAuth, "metrics-auth", Host, Warning,
        "let the agent's service account create tokenreviews and subjectaccessreviews, or set --metrics-auth to none; the network does not depend on it";
    /// `--mtu` is more than the underlay carries.
    MtuTooBig, "mtu-too-big", Host, Warning,
        "set --mtu to auto";
    /// The underlay leaves pods a smaller MTU than their family needs.
    MtuTooSmall, "mtu-too-small", Host, NewPods,
        "raise the MTU of the interface";
    /// There is no way to other nodes yet that could tell the MTU of pods.
    MtuUnknown, "mtu-unknown", Host, NewPods,
        "bring up the uplink or the routing daemon, so that there is a route to the other nodes or a default route, or set --mtu; the agent goes on as soon as there is one";
    /// A table of nftables cannot be read or written.
    Nftables, "nftables", Host, NewPods,
        "mend what it names; the agent tries again by itself";
    /// The own Node has no pod CIDR.
    NoPodCidr, "no-pod-cidr", OwnNode, NewPods,
        "let kube-controller-manager give it one (--allocate-node-cidrs, --cluster-cidr), or set the Node's spec.podCIDRs; the agent goes on as soon as it is there";
    /// The own Node has no address that the underlay flags or the InternalIP pick.
    NoUnderlayAddress, "no-underlay-address", OwnNode, RunningPods,
        "add one to the Node's status.addresses (kubelet --node-ip), or pick another address with --underlay";
    /// The kernel has no route to any of the nodes that it was asked for.
    NoWayToNodes, "no-way-to-nodes", Host, Warning,
        "bring up the uplink or the routing daemon, so that there is a route to the other nodes or a default route; `ip route get ADDRESS from OWN-ADDRESS` shows what the kernel answers";
    /// A Node's address cannot be that of another machine.
    NodeAddressRefused, "node-address-refused", AnyNode, Warning,
        "correct the Node's status.addresses, or delete the Node that is stale; until then the address is not used";
    /// Several Nodes have one address.
    NodeAddressShared, "node-address-shared", AnyNode, Warning,
        "delete the Node that is stale, or correct the status.addresses of the one that does not have the address; over VXLAN the pods of the one that has it are reached all the same";
    /// A Node shares no family or link with this one, or the kernel refuses the way to it.
    NodeNotReached, "node-not-reached", AnyNode, Warning,
        "mend what is named in the Node's status.addresses, or choose a backend and an underlay that all nodes share";
    /// No list of Nodes was complete yet.
    NodesNotListed, "nodes-not-listed", Source, NewPods,
        "wait for the first list";
    /// The API server or the file of Nodes cannot be read.
    NodesUnreadable, "nodes-unreadable", Source, NewPods,
        "mend what it names; the agent tries again by itself and holds the last good state";
    /// The API server refuses Events or the Node's condition.
    NotReported, "not-reported", Reports, Warning,
        "let the agent's service account create and patch Events in the namespace default, create them in those of policies, and patch the status of its Node; the network does not depend on it";
    /// Another agent runs on this node.
    OtherAgent, "other-agent", Host, Warning,
        "stop one of the two: `ss -xap` shows the processes that have or want the socket @tweed-agent; two agents of one --run-dir keep each other from running";
    /// Another CNI config comes before tweed's.
    OtherCniConfig, "other-cni-config", Host, Warning,
        "remove it, or move it out of the folder, if pods are to be tweed's";
    /// Another program serves Services on a node whose agent does so.
    OtherServiceProxy, "other-service-proxy", Host, Warning,
        "let one program serve Services: take the other one off this node, or set --services to off";
    /// It is not known what other tables drop.
    OtherTablesUnreadable, "other-tables-unreadable", Host, Warning,
        "mend what it names; the agent tries again by itself";
    /// A firewall drops the VXLAN packets to other nodes.
    OutboundDrop, "outbound-drop", Host, Warning,
        "let the VXLAN port out to the other nodes";
    /// The list of Nodes is empty, or does not have the own Node.
    OwnNodeMissing, "own-node-missing", OwnNode, NewPods,
        "check --node-name, and that the source is this cluster's; until the Node is there, nothing is changed";
    /// Large packets do not reach other nodes.
    PeerMtu, "peer-mtu", AnyNode, Warning,
        "raise the MTU on the way between the nodes, or give every agent an --mtu that passes";
    /// Packets pass between this node and others in one direction only.
    PeerOneWay, "peer-one-way", AnyNode, Warning,
        "let what is named pass in the other direction too: a firewall, a security group or a stale route on the way drops it";
    /// Nodes answer at their own addresses, and not over the way that pods' packets take.
    PeerSilent, "peer-silent", AnyNode, Warning,
        "let the VXLAN port pass between the nodes, with direct routes the addresses of pods: a firewall, a security group or the network between them drops it";
    /// Nodes that are Ready answer nothing.
    PeerUnreachable, "peer-unreachable", AnyNode, Warning,
        "mend the network between the nodes, or the node itself; it is no problem any more once its Node is not Ready or deleted";
    /// The program `tweed` is not where the runtime looks for it.
    PluginMissing, "plugin-missing", Host, Warning,
        "copy the program tweed there, or give --cni-bin-dir the folder where it is";
    /// A plugin of the chain does not answer VERSION.
    PluginUnusable, "plugin-unusable", Host, Warning,
        "replace it by one that is built for this machine, or remove it";
    /// Pod CIDRs are inside a network that this machine is connected to.
    PodCidrOverlap, "pod-cidr-overlap", Host, Warning,
        "give pods a range of their own, or this machine a narrower network; pods are served all the same";
    /// A Node's pod CIDR cannot be used.
    PodCidrRefused, "pod-cidr-refused", AnyNode, Warning,
        "give this Node another range, or delete the Node that is stale; until then its pods are not reached";
    /// A table of somebody else translates flows between pods.
    PodsMasqueraded, "pods-masqueraded", Host, Warning,
        "have its rules leave packets between pods alone; policies, and programs that look at who connects, take a pod for the node until then";
    /// Pods have addresses that their Node no longer has.
    PodsOutsideCidr, "pods-outside-cidr", Host, Warning,
        "restart these pods: they then get an address of the node's own CIDR";
    /// The API server forbids the agent to read policies, or the objects that they are about.
    PoliciesForbidden, "policies-forbidden", Rights, NewPods,
        "give the agent the rights of this version's manifests, or set --policy to off; the policies that it can read are in force";
    /// It is not known yet which policies there are, or what they allow.
    PoliciesNotListed, "policies-not-listed", Source, NewPods,
        "wait for the first lists";
    /// Policies, or the objects that they are about, cannot be read.
    PoliciesUnreadable, "policies-unreadable", Source, NewPods,
        "mend what it names; the agent tries again by itself, and the policies that it knows stay in force";
    /// Another program receives what `--policy-log on` logs.
    PolicyLogTaken, "policy-log-taken", Host, Warning,
        "stop the other program that listens to group 116 of nfnetlink_log (such as ulogd), or set --policy-log to off; policies are enforced all the same";
    /// What `--policy-log on` logs cannot be received, and no other program has it.
    PolicyLogUnavailable, "policy-log-unavailable", Host, Warning,
        "load nfnetlink_log (`modprobe nfnetlink_log`), or set --policy-log to off; policies are enforced all the same";
    /// A policy has something that cannot be carried out.
    PolicyUnsupported, "policy-unsupported", Policy, Warning,
        "remove or replace what it names; until then it allows nothing by that part of the policy";
    /// The reference plugin `portmap` is missing.
    PortmapMissing, "portmap-missing", Host, Warning,
        "install the reference CNI plugins into that folder, if pods are to have hostPorts";
    /// The reference plugin `portmap` is of a version with CVE-2025-67499.
    PortmapVulnerable, "portmap-vulnerable", Host, Warning,
        "install portmap 1.9.0 or later, from the release of the reference CNI plugins or the package of the distribution";
    /// All addresses of one of the node's pod CIDRs are in use.
    RangeFull, "range-full", Host, Warning,
        "new pods wait until one is free; let fewer pods run here (kubelet --max-pods), or give nodes larger pod CIDRs";
    /// A routing rule of somebody else leads packets past the routes to pods.
    RouteShadowed, "route-shadowed", Host, Warning,
        "add a rule before it that looks up the pods' ranges in the main table";
    /// Somebody else has a route to a pod CIDR or a pod, in place of tweed's or beside it.
    RouteTaken, "route-taken", Host, Warning,
        "remove the other route; tweed then adds its own";
    /// A Service is not served at an address or a port that it says it has.
    ServiceAddressRefused, "service-address-refused", Service, Warning,
        "have its load balancer's controller, or whoever wrote it, give it an address that is its own, or another port; for one that --load-balancer-cidrs leaves out, change that flag";
    /// A ServiceCIDR has the address of a Node, or a range of pods.
    ServiceCidrOverlap, "service-cidr-overlap", Service, Warning,
        "give Services a range in which no pod and no node has an address: make another ServiceCIDR, and delete this one; until then packets to pods and nodes pass, but those to other machines in the range are dropped";
    /// Several Services claim one address and port, or one node port.
    ServiceConflict, "service-conflict", Service, Warning,
        "give all but one of them another address or port; until then the first has it";
    /// The port of a Service's health checks cannot be listened on.
    ServiceHealthPort, "service-health-port", Host, Warning,
        "free the port, or let the Service have another healthCheckNodePort; until then its load balancer counts this node as one without endpoints; it is tried again every second";
    /// A Service's session affinity has another timeout, as there are too many.
    ServiceTimeout, "service-timeout", Service, Warning,
        "use one of the timeouts that other Services have: at most 32 different ones are carried out exactly, further ones are longer than asked";
    /// A Service has so many endpoints that some are never used.
    ServiceTooManyEndpoints, "service-too-many-endpoints", Service, Warning,
        "split the Service, or let it have fewer endpoints";
    /// The API server forbids the agent to read Services or what belongs to them.
    ServicesForbidden, "services-forbidden", Rights, NewPods,
        "apply install/kustomize/with-services/rbac.yaml of this version, or set --services to off";
    /// The address on which load balancers ask for this node's health cannot be listened on.
    ServicesHealthAddr, "services-health-addr", Host, Warning,
        "stop kube-proxy if it still runs, free the port, or give --services-health-addr another address; it is tried again every second";
    /// The address for kube-proxy's metrics cannot be listened on.
    ServicesMetricsAddr, "services-metrics-addr", Host, Warning,
        "stop kube-proxy if it still runs, free the port, or give --services-metrics-addr another address; it is tried again every second";
    /// It is not known yet which Services and endpoints there are.
    ServicesNotListed, "services-not-listed", Source, NewPods,
        "wait for the first lists; until then the kernel keeps what an earlier run has left";
    /// Services, or what belongs to them, cannot be read.
    ServicesUnreadable, "services-unreadable", Source, NewPods,
        "mend what it names; the agent tries again by itself, and what it knows of Services stays in force";
    /// The agent has not completed its first pass.
    Starting, "starting", Source, NewPods,
        "wait; if it stays, the log says what it waits for";
    /// A file in the address store is damaged, or not of the store.
    StoreFile, "store-file", Host, Warning,
        "it is left alone; remove it if it is nobody's, but never a record (attachments/…) of a pod that runs: its addresses could be given to another pod";
    /// The address store cannot be read or locked.
    StoreUnusable, "store-unusable", Host, Warning,
        "local pods' routes are not mended until it can be read; the agent tries again by itself";
    /// An address that nobody uses cannot be freed.
    SweepFailed, "sweep-failed", Host, Warning,
        "mend what it names; the agent tries again by itself";
    /// A sysctl cannot be set.
    SysctlUnwritable, "sysctl-unwritable", Host, RunningPods,
        "set it on the host, or give --sysctl-dir the host's /proc/sys/net, mounted so that it can be written";
    /// The file with the sysctls of before tweed is damaged, or cannot be read or written.
    SysctlsFile, "sysctls-file", Host, Warning,
        "mend what it names; if the file is damaged, set by hand what it should restore, and remove it";
    /// The own Node's address is on no interface.
    UnderlayAddressMissing, "underlay-address-missing", OwnNode, RunningPods,
        "give an interface the address, or correct the Node's status.addresses (kubelet --node-ip); check that --node-name is this machine's Node";
    /// The own Node's address is tentative, a duplicate or temporary.
    UnderlayAddressUnusable, "underlay-address-unusable", OwnNode, RunningPods,
        "give the interface a lasting address that no other machine has, and list it in the Node (kubelet --node-ip)";
    /// The interface of the own Node's address, by which packets leave, is down.
    UnderlayDown, "underlay-down", Host, RunningPods,
        "bring the interface up";
    /// No flag says which family the underlay has, and not all Nodes list the same one first.
    UnderlayFamilyUnset, "underlay-family-unset", AnyNode, Warning,
        "give the agents of all nodes the same --underlay-family, or the same --underlay; or have each Node list its addresses in the same order (kubelet --node-ip)";
    /// Nobody reads a variable of the environment (`tweed-install check` only).
    VariableUnknown, "variable-unknown", Host, Warning,
        "correct its name, or take it away: docs/flags.md has all variables";
    /// A Node's VTEP MAC is another Node's.
    VtepMacRefused, "vtep-mac-refused", AnyNode, Warning,
        "give this Node another name, from which the MAC is made, or delete the Node that is stale; until then it is not reached over VXLAN";
    /// A device that is not tweed's has the name of the VXLAN device.
    VxlanNameTaken, "vxlan-name-taken", Host, RunningPods,
        "rename or delete the device; tweed then makes its own";
    /// Somebody takes the carrier of the VXLAN device away.
    VxlanNoCarrier, "vxlan-no-carrier", Host, RunningPods,
        "have the program that sets protodown on the device leave it alone, and run ip link set DEVICE protodown off";
    /// Somebody else holds the UDP port of VXLAN.
    VxlanPortTaken, "vxlan-port-taken", Host, RunningPods,
        "stop what holds the port, or give every node another --vxlan-port";
    /// The kernel refuses the VXLAN device for another reason.
    VxlanRefused, "vxlan-refused", Host, RunningPods,
        "mend what the kernel names; the agent tries again by itself";
    /// Another VXLAN device has the same VNI on the same port.
    VxlanVniTaken, "vxlan-vni-taken", Host, RunningPods,
        "delete the device that has it (ip -d link show type vxlan), or give every node another --vni or --vxlan-port";
    /// The kernel refuses a change.
    WriteRefused, "write-refused", Host, RunningPods,
        "mend what the kernel names; the agent tries again by itself";
}

impl ProblemKind {
    /// The fixed word for metrics, logs and documents: `no-pod-cidr`.
    #[must_use]
    pub const fn word(self) -> &'static str {
        self.facts().word
    }

    /// The same as Kubernetes writes reasons: `NoPodCidr`.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        self.facts().reason
    }

    /// What kind of object it is about.
    #[must_use]
    pub const fn scope(self) -> Scope {
        self.facts().scope
    }
}

impl fmt::Display for ProblemKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// One thing that is wrong, on which object, and its cure. Two problems with
/// the same `kind` and `object` are the same problem.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Problem {
    /// What kind of problem it is.
    pub kind: ProblemKind,
    /// The object: a Node's name, a device, a table.
    pub object: String,
    /// What it does.
    pub effect: Effect,
    /// One sentence: what is wrong.
    pub message: String,
    /// One sentence: what to do.
    pub cure: String,
}

impl Problem {
    /// A problem of `kind` on `object`, with the default effect and cure of its
    /// kind.
    pub fn new(kind: ProblemKind, object: impl Into<String>, message: impl Into<String>) -> Self {
        let Facts { effect, cure, .. } = kind.facts();
        Self {
            kind,
            object: object.into(),
            effect,
            message: message.into(),
            cure: cure.to_owned(),
        }
    }

    /// The same with another effect.
    #[must_use]
    pub fn with_effect(self, effect: Effect) -> Self {
        Self { effect, ..self }
    }

    /// The same with another cure.
    #[must_use]
    pub fn with_cure(self, cure: impl Into<String>) -> Self {
        let cure = cure.into();
        Self { cure, ..self }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.message, self.object, self.cure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_ordered_by_their_word_and_none_has_two() {
        assert!(ProblemKind::ALL.is_sorted());
        let words: Vec<&str> = ProblemKind::ALL.iter().map(|kind| kind.word()).collect();
        assert!(words.is_sorted_by(|a, b| a < b), "{words:?}");
    }

    #[test]
    fn a_reason_is_the_word_in_camel_case() {
        for kind in ProblemKind::ALL {
            let camel = kind.word().split('-').flat_map(|word| {
                let (first, rest) = word.split_at(1);
                [first.to_ascii_uppercase(), rest.to_owned()]
            });
            assert_eq!(kind.reason(), camel.collect::<String>());
        }
        assert_eq!(ProblemKind::NoPodCidr.reason(), "NoPodCidr");
        assert_eq!(ProblemKind::Nftables.reason(), "Nftables");
    }
}
