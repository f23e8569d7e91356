//! Clusters with the fast path, flows that take it, and what the agents say of it.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::thread::sleep;
use std::time::Duration;

use aya::programs::{ProgramInfo, SchedClassifier, TcAttachType};
use tweed_lab::{Agent, AgentOptions, Cluster, ClusterPod, Lab, LabError, Netns, wait_until};

use crate::packets::failed;

/// Maximum time until something that the agent does is seen.
pub const LIMIT: Duration = Duration::from_secs(20);
/// How long a flow stays in without passing the kernel's path: the fast path's own limit.
pub const LIFE: Duration = Duration::from_secs(5);

/// How many of something a test takes: few, or as many as a variable of the environment says.
pub fn many(variable: &str, few: usize) -> usize {
    match std::env::var(variable) {
        Ok(number) => number.parse().unwrap(),
        Err(_) => few,
    }
}

/// The addresses that pods have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pods {
    Ipv4,
    Ipv6,
    Both,
}

/// A cluster of two nodes, whose agents are started with or without the fast path.
pub struct Scene {
    pub cluster: Cluster,
    options: AgentOptions,
}

impl Scene {
    /// Agents with these arguments, and the fast path.
    pub fn new(args: &[&str], pods: Pods) -> Result<Self, LabError> {
        Self::with_fast_path("on", args, pods)
    }

    /// Agents with this `--fast-path`.
    pub fn with_fast_path(mode: &str, args: &[&str], pods: Pods) -> Result<Self, LabError> {
        Self::prepared(mode, args, pods, |_| Ok(()))
    }

    /// The same, after `prepare` has changed the nodes or what is said of them.
    pub fn prepared(
        mode: &str,
        args: &[&str],
        pods: Pods,
        prepare: impl FnOnce(&mut Cluster) -> Result<(), LabError>,
    ) -> Result<Self, LabError> {
        let mut cluster = Cluster::empty(&Lab::new()?, |options| options)?;
        for index in [1, 2] {
            cluster.plug(index)?;
            let cidrs = &mut cluster.entry(index)?.manifest.pod_cidrs;
            let ipv6 = format!("fd00:10:244:{index}::/64");
            match pods {
                Pods::Ipv4 => {}
                Pods::Ipv6 => *cidrs = vec![ipv6],
                Pods::Both => cidrs.push(ipv6),
            }
        }
        prepare(&mut cluster)?;
        cluster.publish()?;
        let options = AgentOptions::new(cluster.nodes_file());
        let options = args.iter().fold(options, |all, arg| all.arg(*arg));
        let mut scene = Self { cluster, options };
        scene.start(mode)?;
        Ok(scene)
    }

    /// Starts both agents with this `--fast-path`; those that run are killed.
    pub fn start(&mut self, mode: &str) -> Result<(), LabError> {
        for index in [1, 2] {
            self.start_one(index, mode)?;
        }
        self.cluster.wait_ready()
    }

    /// Starts one, without a wait until it is ready.
    pub fn start_one(&mut self, index: u8, mode: &str) -> Result<(), LabError> {
        self.start_one_with(index, mode, |options| options)
    }

    /// The same, with other options.
    pub fn start_one_with(
        &mut self,
        index: u8,
        mode: &str,
        change: impl FnOnce(AgentOptions) -> AgentOptions,
    ) -> Result<(), LabError> {
        let options = self.options.clone().arg("--fast-path").arg(mode);
        let options = change(options);
        let entry = self.cluster.entry(index)?;
        entry.agent = None;
        entry.agent = Some(entry.node.start_agent(&options)?);
        Ok(())
    }

    pub fn node(&self, index: u8) -> &Netns {
        self.cluster[index].node.netns()
    }

    /// The agent's own words about the fast path.
    pub fn all(&self, index: u8) -> String {
        all(&self.cluster, index)
    }

    /// The sum of a metric, whose name may have some labels, on one node.
    pub fn sum(&self, index: u8, name: &str) -> Result<f64, LabError> {
        let (_, text) = agent(&self.cluster, index).get("/metrics")?;
        let lines = text.lines().filter(|line| line.starts_with(name));
        let values = lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
        Ok(values.sum())
    }

    /// How many packets have taken this way on a node.
    pub fn packets(&self, index: u8, way: &str) -> Result<f64, LabError> {
        packets(&self.cluster, index, way)
    }

    /// How many packets to pods were left to the kernel, or flows not let in, for this reason.
    pub fn left(&self, index: u8, why: &str) -> Result<f64, LabError> {
        let name = format!("tweed_fast_path_kernel_path_total{{why=\"{why}\"}}");
        let refused = format!("tweed_fast_path_admissions_total{{result=\"{why}\"}}");
        Ok(self.sum(index, &name)? + self.sum(index, &refused)?)
    }

    /// Waits until so many programs are attached on a node.
    pub fn wait_for_hooks(&self, index: u8, count: u32) -> Result<(), LabError> {
        let what = format!("{count} programs on node {index}");
        wait_until(&what, LIMIT, || {
            match self.sum(index, "tweed_fast_path_hooks") {
                Ok(now) if now == f64::from(count) => Ok(()),
                Ok(now) => Err(now.to_string()),
                Err(error) => Err(error.chain()),
            }
        })
    }

    /// Waits until packets take a way.
    pub fn wait_for(&self, index: u8, way: &str) -> Result<(), LabError> {
        wait_for(&self.cluster, index, way)
    }

    /// Has the switch carry the pods' own addresses, as plain routes need it.
    pub fn carry_pods(&self) -> Result<(), LabError> {
        let switch = self.cluster.underlay().switch();
        switch.nft("flush chain bridge lab ingress")
    }
}

pub fn agent(cluster: &Cluster, index: u8) -> &Agent {
    cluster[index].agent.as_ref().unwrap()
}

/// How many packets have taken this way on a node.
pub fn packets(cluster: &Cluster, index: u8, way: &str) -> Result<f64, LabError> {
    let name = format!("tweed_fast_path_packets_total{{way=\"{way}\"}}");
    Ok(agent(cluster, index).metric(&name)?.unwrap_or_default())
}

/// Waits until packets take a way.
pub fn wait_for(cluster: &Cluster, index: u8, way: &str) -> Result<(), LabError> {
    let before = packets(cluster, index, way)?;
    wait_until(
        &format!("packets to go {way} on node {index}"),
        LIMIT,
        || match packets(cluster, index, way) {
            Ok(now) if now > before => Ok(()),
            Ok(now) => Err(format!("{now}: {}", all(cluster, index))),
            Err(error) => Err(error.chain()),
        },
    )
}

/// What the agent says of the fast path.
pub fn all(cluster: &Cluster, index: u8) -> String {
    let (_, text) = agent(cluster, index).get("/metrics").unwrap_or_default();
    let lines = text
        .lines()
        .filter(|line| line.starts_with("tweed_fast_path"));
    lines.collect::<Vec<_>>().join("\n")
}

/// The address of a pod that is of this family.
pub fn address(pod: &ClusterPod, is_ipv4: bool) -> IpAddr {
    let mut all = pod.addresses();
    all.find(|address| address.is_ipv4() == is_ipv4).unwrap()
}

/// A connection from a namespace to a pod's port, by what may be a Service.
pub fn connect(
    from: &Netns,
    at: SocketAddr,
    to: &ClusterPod,
    port: u16,
) -> Result<(TcpStream, TcpStream), LabError> {
    let server = to.netns();
    let listener = server.listen(|| TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)))?;
    let client = from
        .enter(|| TcpStream::connect_timeout(&at, Duration::from_secs(10)))?
        .map_err(|source| failed("connect", from, source))?;
    let accepted = listener.accept();
    let (peer, _) = accepted.map_err(|source| failed("accept", server, source))?;
    Ok((client, peer))
}

/// The objects of a Service of both families, port 80 of TCP and UDP, with their keys.
pub fn service(ips: [&str; 2], endpoints: &[&ClusterPod], port: u16) -> Vec<(String, String)> {
    let cidrs = "apiVersion: networking.k8s.io/v1\nkind: ServiceCIDR\n\
                 metadata: {name: kubernetes}\nspec: {cidrs: [10.96.0.0/16, \"fd00:96::/112\"]}\n";
    let ports = |number: &str| {
        let one = |protocol: &str| {
            format!(
                "{{name: {}, protocol: {protocol}, {number}}}",
                protocol.to_lowercase()
            )
        };
        format!("[{}, {}]", one("TCP"), one("UDP"))
    };
    let [ipv4, ipv6] = ips;
    let mut all = vec![
        ("cidrs".to_owned(), cidrs.to_owned()),
        (
            "service".to_owned(),
            format!(
                "apiVersion: v1\nkind: Service\nmetadata: {{namespace: shop, name: web}}\n\
                 spec: {{type: ClusterIP, clusterIP: {ipv4}, clusterIPs: [{ipv4}, \"{ipv6}\"], \
                 ipFamilies: [IPv4, IPv6], ports: {}}}\n",
                ports("port: 80")
            ),
        ),
    ];
    for is_ipv4 in [true, false] {
        let family = if is_ipv4 { "IPv4" } else { "IPv6" };
        let of = |pod: &&ClusterPod| {
            let address = pod.addresses().find(|one| one.is_ipv4() == is_ipv4)?;
            Some(format!(
                "{{addresses: [\"{address}\"], conditions: {{ready: true}}}}"
            ))
        };
        let of_family: Vec<String> = endpoints.iter().filter_map(of).collect();
        all.push((
            format!("endpoints {family}"),
            format!(
                "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
                 metadata: {{namespace: shop, name: web-{}, \
                 labels: {{kubernetes.io/service-name: web}}}}\n\
                 addressType: {family}\nendpoints: [{}]\nports: {}\n",
                family.to_lowercase(),
                of_family.join(", "),
                ports(&format!("port: {port}")),
            ),
        ));
    }
    all
}

/// Waits until a Service leads to this pod.
pub fn wait_for_service(
    from: &Netns,
    at: SocketAddr,
    to: &ClusterPod,
    port: u16,
) -> Result<(), LabError> {
    let bind = || TcpListener::bind((Ipv6Addr::UNSPECIFIED, port));
    let _listener = to.netns().listen(bind)?;
    let what = format!("{at} to lead to an endpoint");
    wait_until(&what, LIMIT, || {
        let limit = Duration::from_millis(300);
        let connected = from.enter(|| TcpStream::connect_timeout(&at, limit));
        match connected {
            Ok(Ok(_)) => Ok(()),
            Ok(connected) => Err(format!("{connected:?}")),
            Err(error) => Err(error.chain()),
        }
    })
}

/// A byte goes back and forth until somebody ends the connection.
pub fn go_back_and_forth(mut client: &TcpStream, mut peer: &TcpStream) {
    let mut turn = || -> std::io::Result<()> {
        client.write_all(b"x")?;
        peer.read_exact(&mut [0])?;
        peer.write_all(b"y")?;
        client.read_exact(&mut [0])?;
        sleep(Duration::from_millis(2));
        Ok(())
    };
    while turn().is_ok() {}
}

/// The numbers of the tcx programs at a hook, in the order in which they run.
pub fn programs_at(
    node: &Netns,
    link: &str,
    direction: TcAttachType,
) -> Result<Vec<u32>, LabError> {
    let found = node.enter(|| SchedClassifier::query_tcx(link, direction))?;
    let (_, programs) = found.unwrap();
    Ok(programs.iter().map(ProgramInfo::id).collect())
}
