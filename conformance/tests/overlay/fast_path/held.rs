//! A packet that waits between the rules that have let it pass and the program that lets its
//! flow in: for the next hop of a plain route, which does not answer. What has changed
//! meanwhile counts. On the links of pods and of VXLAN no packet waits for a neighbour, and
//! the program is the same.

use std::net::{Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use tweed_lab::{ClusterPod, LabError, receive, wait_until};

use super::scene::{LIMIT, Pods, Scene};
use super::stale::invalidations;
use crate::packets::failed;
use crate::policy::{DENY_ALL, policy};

const PORT: u16 = 7010;
/// The node where packets wait for the other one.
const NODE: u8 = 1;
const OTHER: u8 = 2;
/// How long what does not come is waited for.
const LATE: Duration = Duration::from_millis(300);
/// How many datagrams are sent after what has changed.
const LATER: u8 = 5;
/// No node hears where another one is: agents announce it past the rules of their nodes.
const NO_ARP: &str = "table bridge held { chain forward { \
    type filter hook forward priority 0; ether type arp drop; }; }";

/// A conversation whose client has sent one datagram and got one: its next one would be let
/// in.
struct Conversation {
    scene: Scene,
    client: UdpSocket,
    server: UdpSocket,
    _pods: [ClusterPod; 2],
}

impl Conversation {
    fn open() -> Result<Self, LabError> {
        let mut scene = Scene::new(&["--backend", "direct"], Pods::Ipv4)?;
        scene.carry_pods()?;
        let server = scene
            .cluster
            .labelled_pod(OTHER, "shop/server", "app=server")?;
        let client = scene
            .cluster
            .labelled_pod(NODE, "shop/client", "app=client")?;
        // A first policy has more effects than others.
        let before = invalidations(&scene, NODE, "policies")?;
        let first = "{podSelector: {}, policyTypes: [Egress], egress: [{}]}";
        scene
            .cluster
            .apply("first", policy("shop", "first", first))?;
        wait_until("policies to be in force", LIMIT, || {
            grown(invalidations(&scene, NODE, "policies"), before)
        })?;
        // The agents attach programs to the links of new pods in their own time. Each node has
        // two more, of the underlay.
        for index in [NODE, OTHER] {
            scene.wait_for_hooks(index, 4)?;
        }
        let at = SocketAddr::new(server.address(), PORT);
        let bind = || UdpSocket::bind((Ipv6Addr::UNSPECIFIED, PORT));
        let server_end = server.netns().listen(bind)?;
        let client_end = client.netns().listen(|| {
            let socket = UdpSocket::bind("0.0.0.0:0")?;
            socket.connect(at)?;
            Ok(socket)
        })?;
        for socket in [&server_end, &client_end] {
            let set = socket.set_read_timeout(Some(LIMIT));
            set.map_err(|source| failed("listen", server.netns(), source))?;
        }
        let conversation = Self {
            client: client_end,
            server: server_end,
            _pods: [server, client],
            scene,
        };
        conversation.send(0);
        let mut buffer = [0; 1];
        let (_, from) = conversation.server.recv_from(&mut buffer).unwrap();
        conversation.server.send_to(&buffer, from).unwrap();
        receive(&conversation.client, &mut buffer).unwrap();
        Ok(conversation)
    }

    fn send(&self, number: u8) {
        self.client.send(&[number]).unwrap();
    }

    /// Sends one that waits.
    fn hold(&self) -> Result<(), LabError> {
        let node = self.scene.node(NODE);
        // The kernel asks until it is answered, and often.
        for (key, value) in [("mcast_solicit", "1000"), ("retrans_time_ms", "100")] {
            node.set_sysctl(&format!("ipv4/neigh/eth0/{key}"), value)?;
        }
        self.scene.cluster.underlay().switch().nft(NO_ARP)?;
        let entry = format!("{} dev eth0", self.scene.cluster[OTHER].node.address());
        node.ip([format!("neigh del {entry}")])?;
        self.send(1);
        let line = format!("ip -j neigh show {entry}");
        wait_until("a packet to wait", LIMIT, || match node.json(&line) {
            Ok(shown) if shown[0]["state"][0] == "INCOMPLETE" => Ok(()),
            other => Err(format!("{other:?}")),
        })
    }

    /// It waits no more. How many flows were let in, and how many were refused for this
    /// reason, once the packet has left.
    fn release(&self, why: Option<&str>) -> Result<[f64; 2], LabError> {
        let counted = || -> Result<[f64; 2], LabError> {
            let name = "tweed_fast_path_admissions_total{result=\"admitted\"}";
            let admitted = self.scene.sum(NODE, name)?;
            let refused = why.map(|why| self.scene.left(NODE, why));
            Ok([admitted, refused.transpose()?.unwrap_or_default()])
        };
        let before = counted()?;
        let switch = self.scene.cluster.underlay().switch();
        switch.nft("delete table bridge held")?;
        wait_until("the packet to leave", LIMIT, || {
            let now = counted().map_err(|error| error.chain())?;
            let grown = [now[0] - before[0], now[1] - before[1]];
            if grown == [0.0; 2] {
                Err(self.scene.all(NODE))
            } else {
                Ok(grown)
            }
        })
    }

    /// What the server hears until nothing has come for a while.
    fn heard(&self) -> Vec<u8> {
        self.server.set_read_timeout(Some(LATE)).unwrap();
        let mut buffer = [0; 1];
        let mut all = Vec::new();
        while receive(&self.server, &mut buffer).is_ok() {
            all.push(buffer[0]);
        }
        all
    }

    /// Which of some that are sent now arrive, and how many take the fast path.
    fn send_later(&self) -> Result<(Vec<u8>, f64), LabError> {
        let before = self.scene.packets(NODE, "direct-out")?;
        for number in 2..2 + LATER {
            self.send(number);
        }
        let heard = self.heard();
        Ok((heard, self.scene.packets(NODE, "direct-out")? - before))
    }
}

fn grown(now: Result<f64, LabError>, before: f64) -> Result<(), String> {
    match now {
        Ok(now) if now > before => Ok(()),
        other => Err(format!("{other:?}")),
    }
}

/// Without a change its flow is let in: by that the others here are told from packets that
/// would not have been let in anyway.
#[test]
fn a_packet_that_has_waited_lets_its_flow_in() -> Result<(), LabError> {
    let held = Conversation::open()?;
    held.hold()?;
    let counted = held.release(None)?;
    assert_eq!(counted, [1.0, 0.0]);
    let (heard, fast) = held.send_later()?;
    let expected: Vec<u8> = (1..2 + LATER).collect();
    assert_eq!(heard, expected);
    assert_eq!(fast, f64::from(LATER));
    Ok(())
}

/// The rules have let it pass before other policies came in force.
#[test]
fn a_policy_comes_while_a_packet_waits() -> Result<(), LabError> {
    let mut held = Conversation::open()?;
    held.hold()?;
    let before = invalidations(&held.scene, NODE, "policies")?;
    let deny = policy("shop", "deny", DENY_ALL);
    held.scene.cluster.objects().remove("first");
    held.scene.cluster.apply("deny", deny)?;
    wait_until("the policy to be in force", LIMIT, || {
        grown(invalidations(&held.scene, NODE, "policies"), before)
    })?;
    let counted = held.release(Some("not-evaluated"))?;
    assert_eq!(counted, [0.0, 1.0]);
    let (heard, fast) = held.send_later()?;
    assert!(!heard.iter().any(|number| *number > 1), "{heard:?}");
    assert_eq!(fast, 0.0);
    Ok(())
}

/// As the agent does when an endpoint of a Service goes.
#[test]
fn conntrack_forgets_a_flow_while_a_packet_waits() -> Result<(), LabError> {
    let held = Conversation::open()?;
    held.hold()?;
    let port = held.client.local_addr().unwrap().port();
    held.scene
        .node(NODE)
        .sh(&format!("conntrack -D -p udp --orig-port-src {port}"))?;
    let counted = held.release(Some("not-established"))?;
    assert_eq!(counted, [0.0, 1.0]);
    // Those after it are of a new flow, which nobody has answered.
    let (heard, fast) = held.send_later()?;
    let expected: Vec<u8> = (1..2 + LATER).collect();
    assert_eq!(heard, expected);
    assert_eq!(fast, 0.0);
    Ok(())
}
