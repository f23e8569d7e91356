//! From kube-proxy to tweed and back on one node, under open flows of TCP and UDP: none of
//! them is reset or lost or led to another pod, and new ones work at each step. The node's rules are those that
//! kube-proxy makes for one Service, with its names; its own rules in full are used by
//! the tests of `tweed-install`.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

use tweed_lab::{AgentOptions, Cluster, ClusterPod, LabError, Netns, run_with, wait_until};

use crate::uninstall::tweed_install;

/// The cluster IP and its port, of TCP and UDP alike.
const SERVICE: (Ipv4Addr, u16) = (Ipv4Addr::new(10, 96, 0, 10), 7000);
/// The port of the pods behind it.
const PORT: u16 = 7001;
/// How many flows are opened at each step, so that some would be led to the other pod if
/// it were decided again where they go.
const FLOWS: usize = 8;
/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(10);
const LIMIT: Duration = Duration::from_secs(60);

/// A program that loads rules, and the rules; `POD` stands for the pod's address.
type Rules = (&'static [&'static str], &'static str);

/// What kube-proxy has in its mode `iptables`.
const IPTABLES: Rules = (
    &["iptables-nft-restore", "--noflush"],
    "*nat
:KUBE-SERVICES - [0:0]
:KUBE-SVC-CDGGSHYLG3RE2FKL - [0:0]
:KUBE-SEP-AFGSLHOD2HFNCBX4 - [0:0]
-A PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-A OUTPUT -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-A KUBE-SERVICES -d 10.96.0.10/32 -p tcp -m tcp --dport 7000 -j KUBE-SVC-CDGGSHYLG3RE2FKL
-A KUBE-SERVICES -d 10.96.0.10/32 -p udp -m udp --dport 7000 -j KUBE-SVC-CDGGSHYLG3RE2FKL
-A KUBE-SVC-CDGGSHYLG3RE2FKL -j KUBE-SEP-AFGSLHOD2HFNCBX4
-A KUBE-SEP-AFGSLHOD2HFNCBX4 -p tcp -m tcp -j DNAT --to-destination POD:7001
-A KUBE-SEP-AFGSLHOD2HFNCBX4 -p udp -m udp -j DNAT --to-destination POD:7001
COMMIT
",
);

/// The same in its mode `nftables`.
const NFTABLES: Rules = (
    &["nft", "-f", "-"],
    "table ip kube-proxy {
    map service-ips {
        type ipv4_addr . inet_proto . inet_service : verdict
        elements = { 10.96.0.10 . tcp . 7000 : goto service-web,
                     10.96.0.10 . udp . 7000 : goto service-web }
    }
    chain service-web {
        meta l4proto { tcp, udp } dnat to POD:7001
    }
    chain services {
        ip daddr . meta l4proto . th dport vmap @service-ips
    }
    chain nat-prerouting {
        type nat hook prerouting priority dstnat; policy accept;
        jump services
    }
    chain nat-output {
        type nat hook output priority -100; policy accept;
        jump services
    }
}
",
);

/// The same in its mode `ipvs`: the addresses of Services are the node's own, so that IPVS
/// sees their packets at the hook input. A kube-proxy that is back finds its services.
const IPVS: Rules = (
    &["sh", "-e"],
    "ip link add kube-ipvs0 type dummy
ip address add 10.96.0.10/32 dev kube-ipvs0
for protocol in t u; do
    ipvsadm --list -$protocol 10.96.0.10:7000 >/dev/null 2>&1 && continue
    ipvsadm --add-service -$protocol 10.96.0.10:7000 --scheduler rr
    ipvsadm --add-server -$protocol 10.96.0.10:7000 --real-server POD:7001 --masquerading
done
echo 1 >/proc/sys/net/ipv4/vs/conntrack
",
);

const OBJECTS: &str = "
apiVersion: v1
kind: Service
metadata: {namespace: shop, name: web}
spec:
  type: ClusterIP
  clusterIP: 10.96.0.10
  clusterIPs: [10.96.0.10]
  ports:
    - {name: tcp, protocol: TCP, port: 7000}
    - {name: udp, protocol: UDP, port: 7000}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {namespace: shop, name: web-1, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
endpoints:
  - {addresses: [POD], nodeName: node2, conditions: {ready: true}}
  - {addresses: [OTHER], nodeName: node2, conditions: {ready: true}}
ports:
  - {name: tcp, protocol: TCP, port: 7001}
  - {name: udp, protocol: UDP, port: 7001}
";

/// A node with kube-proxy's rules and a client; the pods behind the Service are on another.
/// kube-proxy's rules lead to one of them.
struct HandOver {
    cluster: Cluster,
    client: ClusterPod,
    program: &'static [&'static str],
    rules: String,
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
    fn open(from: &Netns) -> Result<Self, LabError> {
        let to = SocketAddr::from(SERVICE);
        let open = || {
            let tcp = TcpStream::connect_timeout(&to, ANSWER)?;
            tcp.set_read_timeout(Some(ANSWER))?;
            let udp = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
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
    let any = (Ipv4Addr::UNSPECIFIED, PORT);
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

fn ipv4(pod: &ClusterPod) -> Ipv4Addr {
    match pod.address() {
        IpAddr::V4(address) => address,
        IpAddr::V6(_) => panic!("the lab's pods have IPv4"),
    }
}

impl HandOver {
    fn new((program, rules): Rules) -> Result<Self, LabError> {
        let mut cluster = Cluster::start(2)?;
        let client = cluster.pod(1, "client")?;
        let (pod, other) = (cluster.pod(2, "pod")?, cluster.pod(2, "other")?);
        for (pod, name) in [(&pod, b'p'), (&other, b'o')] {
            Cluster::wait_for_path(client.netns(), pod.address())?;
            serve(pod.netns(), name)?;
        }
        let [pod, other] = [&pod, &other].map(|pod| ipv4(pod).to_string());
        let objects = OBJECTS.replace("POD", &pod).replace("OTHER", &other);
        cluster.apply("services", objects)?;
        Ok(Self {
            cluster,
            client,
            program,
            rules: rules.replace("POD", &pod),
            flows: Vec::new(),
        })
    }

    fn node(&self) -> &Netns {
        self.cluster[1].node.netns()
    }

    fn kube_proxy_writes_its_rules(&self) -> Result<(), LabError> {
        let mut command = self.node().command(self.program[0]);
        run_with(command.args(&self.program[1..]), &self.rules).map(drop)
    }

    /// The agent of the node is restarted, and serves Services from then on, or no longer.
    fn restart_agent(&mut self, services: bool) -> Result<(), LabError> {
        let word = if services { "on" } else { "off" };
        let options = AgentOptions::new(self.cluster.nodes_file());
        let options = options.arg("--services").arg(word);
        let entry = self.cluster.entry(1)?;
        if let Some(agent) = entry.agent.take() {
            agent.stop()?;
        }
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
        for _ in 0..FLOWS {
            self.flows.push(Flow::open(self.client.netns())?);
        }
        Ok(())
    }

    /// The pods to which the flows lead that were opened last.
    fn last_pods(&self) -> Vec<u8> {
        let last = &self.flows[self.flows.len() - FLOWS..];
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
    let refused = tweed_install(&node.cluster, &["remove-kube-proxy"]).unwrap_err();
    let refused = refused.chain();
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
