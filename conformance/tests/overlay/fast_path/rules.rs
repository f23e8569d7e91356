//! Rules of others (`ip rule`) that route flows of pods: where the kernel sends what they
//! match, also what was in goes.

use std::net::{Ipv4Addr, SocketAddr};
use std::thread::sleep;
use std::time::Duration;

use tweed_lab::{ClusterPod, LabError, Netns, wait_until};

use super::datagrams::Datagrams;
use super::scene::{LIFE, LIMIT, Pods, Scene, address};
use super::ways::with_ipv6;

const PORT: u16 = 7010;
const PAUSE: Duration = Duration::from_millis(1);
/// How long flows are looked at.
const LOOK: Duration = Duration::from_millis(500);
const THIRD: [&str; 2] = ["192.0.2.13", "2001:db8::13"];

/// A flow from a pod on node 1 to one on node 2.
struct Flow {
    client: ClusterPod,
    datagrams: Datagrams,
    is_ipv4: bool,
}

impl Flow {
    fn family(&self) -> &'static str {
        if self.is_ipv4 { "-4" } else { "-6" }
    }

    /// The rule by which the kernel looks at table 100 for it.
    fn rule(&self, selector: &str) -> String {
        let (link, own) = (self.client.result().host_link(), self.datagrams.source.ip());
        let selector = selector
            .replace("LINK", link)
            .replace("OWN", &own.to_string());
        format!("{selector} lookup 100")
    }
}

/// What is seen of a flow in a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    /// What is sent arrives.
    arrives: bool,
    /// It passes the third machine.
    passes_third: bool,
}

const BEFORE: Seen = Seen {
    arrives: true,
    passes_third: false,
};

/// Two flows, and a third machine by which they could go.
struct Routed {
    scene: Scene,
    third: Netns,
    way: &'static str,
    flows: [Flow; 2],
    _server: ClusterPod,
}

impl Routed {
    /// Flows of these families that take this way.
    fn new(
        mut scene: Scene,
        third: Netns,
        way: &'static str,
        families: [bool; 2],
    ) -> Result<Self, LabError> {
        let server = scene.cluster.pod(2, "server")?;
        let mut open = |is_ipv4, number: u16| {
            let client = scene.cluster.pod(1, &format!("client{number}"))?;
            let port = PORT + number;
            let at = SocketAddr::new(address(&server, is_ipv4), port);
            let datagrams = Datagrams::open(client.netns(), at, &server, port, PAUSE)?;
            scene.wait_for(1, way)?;
            let (family, own) = if is_ipv4 { ("ip", 32) } else { ("ip6", 128) };
            let own = format!("{}/{own}", datagrams.source.ip());
            third.nft(&format!(
                "table inet seen{port} {{ counter those {{ }}; chain in {{ \
                 type filter hook prerouting priority -500; \
                 {family} saddr {own} counter name those; }}; }}"
            ))?;
            Ok::<_, LabError>(Flow {
                client,
                datagrams,
                is_ipv4,
            })
        };
        let flows = [open(families[0], 0)?, open(families[1], 1)?];
        Ok(Self {
            scene,
            third,
            way,
            flows,
            _server: server,
        })
    }

    /// How many packets of each flow the third machine has got.
    fn passed(&self) -> Result<[u64; 2], LabError> {
        let of = |port| {
            let counters = format!("nft -j list counter inet seen{port} those");
            let counters = self.third.json(&counters)?;
            let all = counters["nftables"].as_array().unwrap();
            let packets = |object: &serde_json::Value| object["counter"]["packets"].as_u64();
            Ok::<_, LabError>(all.iter().find_map(packets).unwrap())
        };
        Ok([of(PORT)?, of(PORT + 1)?])
    }

    /// What becomes of the flows.
    fn look(&self) -> Result<[Seen; 2], LabError> {
        let arrived = || [0, 1].map(|at: usize| self.flows[at].datagrams.arrivals().len());
        let before = (arrived(), self.passed()?);
        sleep(LOOK);
        let after = (arrived(), self.passed()?);
        Ok([0, 1].map(|at| Seen {
            arrives: after.0[at] > before.0[at] + 5,
            passes_third: after.1[at] > before.1[at] + 5,
        }))
    }

    fn ip(&self, line: &str) -> Result<(), LabError> {
        self.scene.node(1).sh(&format!("ip {line}")).map(drop)
    }

    /// Adds or removes a rule for each flow.
    fn rules(&self, verb: &str, selectors: [&str; 2]) -> Result<(), LabError> {
        let flows = self.flows.iter().zip(selectors);
        flows.into_iter().try_for_each(|(flow, selector)| {
            self.ip(&format!(
                "{} rule {verb} {}",
                flow.family(),
                flow.rule(selector)
            ))
        })
    }

    /// With these rules the flows become what is `expected` within their life, and, unless the
    /// kernel sees to it on the fast path too, they leave that. Then the rules go.
    fn check(&self, selectors: [&str; 2], expected: Seen, is_out: bool) -> Result<(), LabError> {
        self.rules("add", selectors)?;
        sleep(LIFE + Duration::from_secs(1));
        let before = self.scene.packets(1, self.way)?;
        assert_eq!(self.look()?, [expected; 2], "{selectors:?}");
        let went = self.scene.packets(1, self.way)? - before;
        let all = self.scene.all(1);
        assert!(!is_out || went < 1.0, "{selectors:?}: {went}: {all}");
        self.rules("del", selectors)?;
        wait_until("the flows to be as before", LIMIT, || {
            let seen = self.look().map_err(|error| error.chain())?;
            if seen == [BEFORE; 2] {
                Ok(())
            } else {
                Err(format!("{seen:?}"))
            }
        })?;
        self.scene.wait_for(1, self.way)
    }

    /// Without the fast path it is the same.
    fn check_without(mut self, all: &[[&str; 2]], expected: Seen) -> Result<(), LabError> {
        self.scene.start_one(1, "off")?;
        self.scene.cluster.wait_ready()?;
        self.scene.wait_for_hooks(1, 0)?;
        for selectors in all {
            self.rules("add", *selectors)?;
            assert_eq!(self.look()?, [expected; 2], "{selectors:?}");
            self.rules("del", *selectors)?;
        }
        Ok(())
    }
}

#[test]
fn rules_that_route_pods_by_another_machine() -> Result<(), LabError> {
    let scene = Scene::prepared("on", &["--backend", "direct"], Pods::Both, with_ipv6)?;
    let at: Ipv4Addr = THIRD[0].parse().unwrap();
    let third = scene.cluster.underlay().plug("third", at, 1500)?;
    third.set_sysctl("ipv4/ip_forward", "1")?;
    third.set_sysctl("ipv6/conf/all/forwarding", "1")?;
    for link in ["all", "eth0"] {
        third.set_sysctl(&format!("ipv4/conf/{link}/send_redirects"), "0")?;
    }
    third.ip([
        &format!("addr add {}/64 dev eth0 nodad", THIRD[1]),
        "route add 10.244.1.0/24 via 192.0.2.11",
        "route add 10.244.2.0/24 via 192.0.2.12",
        "route add fd00:10:244:1::/64 via 2001:db8::11",
        "route add fd00:10:244:2::/64 via 2001:db8::12",
    ])?;
    let routed = Routed::new(scene, third, "direct-out", [true, false])?;
    for (pods, third) in ["10.244.2.0/24", "fd00:10:244:2::/64"].iter().zip(THIRD) {
        routed.ip(&format!("route add {pods} via {third} dev eth0 table 100"))?;
    }
    let expected = Seen {
        arrives: true,
        passes_third: true,
    };
    // For what skips its path the kernel looks up the way again, but not by the link by which it
    // has come, nor by ports.
    let [links, ports] = [["iif LINK"; 2], ["ipproto udp dport 7010-7011"; 2]];
    let sources = ["from OWN"; 2];
    routed.check([links[0], ports[1]], expected, true)?;
    routed.check([ports[0], links[1]], expected, true)?;
    routed.check(sources, expected, false)?;
    routed.check_without(&[links, ports, sources], expected)
}

#[test]
fn rules_that_route_pods_to_another_node_behind_vxlan() -> Result<(), LabError> {
    let mut scene = Scene::new(&[], Pods::Ipv4)?;
    scene.cluster.add_node(3)?;
    let third = Netns::existing(scene.cluster.lab(), "node3");
    let routed = Routed::new(scene, third, "vxlan-out", [true, true])?;
    routed.ip("route add 10.244.2.0/24 via 10.244.3.0 dev tweed.1 onlink table 100")?;
    // Node 2 takes packets of pods of node 1 from that alone.
    let expected = Seen {
        arrives: false,
        passes_third: true,
    };
    let selectors = ["iif LINK", "from OWN"];
    routed.check(selectors, expected, true)?;
    routed.check_without(&[selectors], expected)
}
