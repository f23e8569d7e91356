//! From kube-proxy to tweed and back on one node, under open flows of TCP and UDP over both
//! families: none of them is reset or lost or led to another pod, and new ones work at each
//! step. The node's rules are those that kube-proxy makes for one Service, with its names;
//! its own rules in full are used by the tests of `tweed-install`.

mod rules;

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

use tweed_lab::{AgentOptions, Cluster, ClusterPod, LabError, Netns, run_with, wait_until};

use self::rules::{IPTABLES, IPVS, NFTABLES, Rules};
use crate::uninstall::tweed_install;

/// The cluster IPs and their port, of TCP and UDP alike.
const SERVICE: [&str; 2] = ["10.96.0.10:7000", "[fd00:96::10]:7000"];
/// The port of the pods behind it.
const PORT: u16 = 7001;
/// How many flows are opened over each family at each step, so that some would be led to
/// the other pod if it were decided again where they go.
const FLOWS: usize = 8;
/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(10);
const LIMIT: Duration = Duration::from_secs(60);

const OBJECTS: &str = "
apiVersion: v1
kind: Service
metadata: {namespace: shop, name: web}
spec:
  type: ClusterIP
  clusterIP: 10.96.0.10
  clusterIPs: [10.96.0.10, 'fd00:96::10']
  ports:
    - {name: tcp, protocol: TCP, port: 7000}
    - {name: udp, protocol: UDP, port: 7000}
";

/// The endpoints of the Service in one family.
const SLICE: &str = "
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {namespace: shop, name: web-INDEX, labels: {kubernetes.io/service-name: web}}
addressType: FAMILY
endpoints:
  - {addresses: ['POD'], nodeName: node2, conditions: {ready: true}}
  - {addresses: ['OTHER'], nodeName: node2, conditions: {ready: true}}
ports:
  - {name: tcp, protocol: TCP, port: 7001}
  - {name: udp, protocol: UDP, port: 7001}
";

/// A node with kube-proxy's rules and a client; the pods behind the Service are on another.
/// kube-proxy's rules lead to one of them.
struct HandOver {
    cluster: Cluster,
    client: ClusterPod,
    /// By family: the program that loads them, and the rules.
    rules: Vec<(&'static [&'static str], String)>,
    /// Flows that were opened at each step so far.
    flows: Vec<Flow>,
}

/// A connection and a socket of UDP, both open, and the pods that they lead to.
struct Flow {
    tcp: TcpStream,
    udp: UdpSocket,
    pods: [u8; 2],
}

impl Flow {
    fn open(from: &Netns, to: SocketAddr) -> Result<Self, LabError> {
        let any: IpAddr = match to {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let open = || {
            let tcp = TcpStream::connect_timeout(&to, ANSWER)?;
            tcp.set_read_timeout(Some(ANSWER))?;
            let udp = UdpSocket::bind((any, 0))?;
            udp.set_read_timeout(Some(ANSWER))?;
            udp.connect(to)?;
            let pods = [0; 2];
            Ok::<_, io::Error>(Self { tcp, udp, pods })
        };
        let mut flow = from.enter(open)?.unwrap();
        flow.pods = flow.ask();
        Ok(flow)
    }

    /// The names of the pods that answer.
    fn ask(&self) -> [u8; 2] {
        let (mut tcp, mut udp) = ([0], [0]);
        (&self.tcp).write_all(b"?").unwrap();
        (&self.tcp).read_exact(&mut tcp).unwrap();
        self.udp.send(b"?").unwrap();
        assert_eq!(self.udp.recv(&mut udp).unwrap(), 1);
        [tcp[0], udp[0]]
    }
}

/// Answers each byte, and each datagram, with the pod's name, until the test's process
/// ends.
fn serve(netns: &Netns, name: u8) -> Result<(), LabError> {
    let any = (Ipv6Addr::UNSPECIFIED, PORT);
    let (tcp, udp) = netns.listen(|| Ok((TcpListener::bind(any)?, UdpSocket::bind(any)?)))?;
    thread::spawn(move || {
        for mut stream in tcp.incoming().flatten() {
            thread::spawn(move || {
                while stream.read_exact(&mut [0]).is_ok() && stream.write_all(&[name]).is_ok() {}
            });
        }
    });
    thread::spawn(move || {
        while let Ok((_, from)) = udp.recv_from(&mut [0]) {
            // The client may be gone.
            let _ = udp.send_to(&[name], from);
        }
    });
    Ok(())
}

/// The addresses of a pod, that of IPv4 first.
fn addresses(pod: &ClusterPod) -> [IpAddr; 2] {
    let find = |is_of: fn(&IpAddr) -> bool| pod.addresses().find(is_of).unwrap();
    [find(IpAddr::is_ipv4), find(IpAddr::is_ipv6)]
}

impl HandOver {
    fn new(rules: Rules) -> Result<Self, LabError> {
        let mut cluster = Cluster::start_dual_stack(2)?;
        let client = cluster.pod(1, "client")?;
        // A flow of UDP that was silent for 30 s, or later for two minutes, would be forgotten,
        // and led to any pod.
        for key in ["udp_timeout", "udp_timeout_stream"] {
            let path = format!("netfilter/nf_conntrack_{key}");
            cluster[1].node.netns().set_sysctl(&path, "3600")?;
        }
        let (pod, other) = (cluster.pod(2, "pod")?, cluster.pod(2, "other")?);
        for (pod, name) in [(&pod, b'p'), (&other, b'o')] {
            for address in addresses(pod) {
                Cluster::wait_for_path(client.netns(), address)?;
            }
            serve(pod.netns(), name)?;
        }
        let [pods, others] = [&pod, &other].map(|pod| addresses(pod).map(|ip| ip.to_string()));
        let mut objects = OBJECTS.to_owned();
        for (index, family) in ["IPv4", "IPv6"].into_iter().enumerate() {
            objects += &SLICE
                .replace("FAMILY", family)
                .replace("INDEX", &index.to_string())
                .replace("POD", &pods[index])
                .replace("OTHER", &others[index]);
        }
        cluster.apply("services", objects)?;
        Ok(Self {
            cluster,
            client,
            rules: rules::by_family(rules, &pods),
            flows: Vec::new(),
        })
    }

    fn node(&self) -> &Netns {
        self.cluster[1].node.netns()
    }

    fn kube_proxy_writes_its_rules(&self) -> Result<(), LabError> {
        for (program, rules) in &self.rules {
            let mut command = self.node().command(program[0]);
            run_with(command.args(&program[1..]), rules)?;
        }
        Ok(())
    }

    /// How many flows are opened at each step.
    fn at_each_step(&self) -> usize {
        FLOWS * self.rules.len()
    }

    /// The agent of the node is restarted, and serves Services from then on, or no longer.
    fn restart_agent(&mut self, services: bool) -> Result<(), LabError> {
        let word = if services { "on" } else { "off" };
        let nodes = self.cluster.nodes_file();
        let options = AgentOptions::new(nodes).arg("--services").arg(word);
        self.cluster.stop_agent(1)?;
        let entry = self.cluster.entry(1)?;
        entry.agent = Some(entry.node.start_agent(&options)?);
        let state = entry.node.run_dir().join("agent.json");
        wait_until("the agent to serve Services or not", LIMIT, || {
            let text = std::fs::read_to_string(&state).map_err(|error| error.to_string())?;
            let expected = format!("\"services\": {services}");
            text.contains(&expected).then_some(()).ok_or(text)
        })
    }

    /// Waits until the node's agent is ready and warns of this.
    fn wait_for_warning(&self, warning: &str) -> Result<(), LabError> {
        let agent = self.cluster[1].agent.as_ref().unwrap();
        wait_until(
            &format!("/readyz to warn of {warning}"),
            LIMIT,
            || match agent.get("/readyz") {
                Ok((200, body)) if body.contains(warning) => Ok(()),
                Ok((code, body)) => Err(format!("{code}: {body}")),
                Err(error) => Err(error.chain()),
            },
        )
    }

    /// All flows so far go on with the pods that they had, and new ones come about.
    #[track_caller]
    fn flows_go_on(&mut self) -> Result<(), LabError> {
        for flow in &self.flows {
            assert_eq!(flow.ask(), flow.pods);
        }
        for index in 0..self.at_each_step() {
            let to = SERVICE[index % self.rules.len()].parse().unwrap();
            self.flows.push(Flow::open(self.client.netns(), to)?);
        }
        Ok(())
    }

    /// The pods to which the flows lead that were opened last.
    fn last_pods(&self) -> Vec<u8> {
        let last = &self.flows[self.flows.len() - self.at_each_step()..];
        let mut pods: Vec<u8> = last.iter().flat_map(|flow| flow.pods).collect();
        pods.sort_unstable();
        pods.dedup();
        pods
    }
}

/// There and back, with the rules of kube-proxy in one of its modes.
fn there_and_back(rules: Rules) -> Result<(), LabError> {
    let mut node = HandOver::new(rules)?;
    let refused = tweed_install(&node.cluster, &["remove-kube-proxy"]).unwrap_err();
    assert!(
        refused
            .chain()
            .contains("does not say that it serves Services")
    );
    node.kube_proxy_writes_its_rules()?;
    node.flows_go_on()?;
    assert_eq!(node.last_pods(), b"p", "kube-proxy's rules lead to one pod");

    node.restart_agent(true)?;
    node.flows_go_on()?;
    assert_eq!(node.last_pods(), b"op", "tweed's come first");
    let removed = tweed_install(&node.cluster, &["remove-kube-proxy", "--watch-seconds=1"])?;
    assert!(removed.contains("removed "), "{removed}");
    node.flows_go_on()?;
    let ruleset = node.node().sh("nft list ruleset")?;
    assert!(
        !ruleset.contains("KUBE-") && !ruleset.contains("kube-proxy"),
        "{ruleset}"
    );

    node.kube_proxy_writes_its_rules()?;
    node.flows_go_on()?;
    node.restart_agent(false)?;
    node.flows_go_on()?;
    assert_eq!(node.last_pods(), b"p", "kube-proxy's are the only ones");
    Ok(())
}

#[test]
fn from_kube_proxy_and_back_in_mode_iptables_no_flow_is_lost() -> Result<(), LabError> {
    there_and_back(IPTABLES)
}

#[test]
fn from_kube_proxy_and_back_in_mode_nftables_no_flow_is_lost() -> Result<(), LabError> {
    there_and_back(NFTABLES)
}

/// IPVS has a table of connections of its own, which the link of kube-proxy serves: it
/// stays until they have ended.
#[test]
#[ignore = "needs a kernel with IPVS, and ipvsadm: make kernels"]
fn from_kube_proxy_and_back_in_mode_ipvs_no_flow_is_lost() -> Result<(), LabError> {
    let mut node = HandOver::new(IPVS)?;
    node.kube_proxy_writes_its_rules()?;
    node.flows_go_on()?;
    assert_eq!(node.last_pods(), b"p", "kube-proxy's rules lead to one pod");

    node.restart_agent(true)?;
    node.wait_for_warning("link kube-ipvs0")?;
    node.flows_go_on()?;
    assert_eq!(node.last_pods(), b"op", "tweed's come first");

    node.restart_agent(false)?;
    node.flows_go_on()?;
    assert_eq!(node.last_pods(), b"p", "kube-proxy's are the only ones");

    node.restart_agent(true)?;
    let error = tweed_install(&node.cluster, &["remove-kube-proxy"]).unwrap_err();
    let refused = error.chain();
    assert!(
        refused.contains("open connections of IPVS would be cut"),
        "{refused}"
    );
    node.flows_go_on()?;
    assert_eq!(node.last_pods(), b"op", "tweed's come first");

    // Those of tweed do not need it.
    let batches = std::mem::take(&mut node.flows).into_iter().enumerate();
    let of_tweed = batches.filter(|(index, _)| index / FLOWS % 2 == 1);
    node.flows = of_tweed.map(|(_, flow)| flow).collect();
    let removed = tweed_install(
        &node.cluster,
        &["remove-kube-proxy", "--force", "--watch-seconds=0"],
    )?;
    for part in ["removed link kube-ipvs0", "kept 2 virtual services of IPVS"] {
        assert!(removed.contains(part), "{removed}");
    }
    node.flows_go_on()?;

    node.kube_proxy_writes_its_rules()?;
    node.restart_agent(false)?;
    node.flows_go_on()?;
    assert_eq!(node.last_pods(), b"p", "kube-proxy's are the only ones");
    Ok(())
}
