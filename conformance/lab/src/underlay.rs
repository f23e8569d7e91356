//! The network between the nodes: a switch, a router, and a host outside.
//!
//! ```text
//!   node1 192.0.2.11 ──┐
//!   node2 192.0.2.12 ──┤ switch ── 192.0.2.1 router 198.51.100.1 ── 198.51.100.10 outside
//!   node3 192.0.2.13 ──┘
//! ```
//!
//! It is as strict as real ones: the switch drops every frame whose source
//! address is not that of the node on that port, and the host outside has a route
//! to the nodes but none to the pods.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use ipnetwork::Ipv4Network;

use crate::error::LabError;
use crate::lab::Lab;
use crate::netns::Netns;
use crate::node::{Node, NodeSpec};
use crate::run::wait_until;

/// The host outside.
pub const OUTSIDE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 10);

/// The nodes' router.
pub(crate) const ROUTER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

const SWITCH_RULES: &str = r#"
table bridge lab {
  counter foreign { }
  set allowed { typeof iifname . ip saddr; }
  chain ingress {
    type filter hook prerouting priority -300; policy accept;
    iifname . ip saddr @allowed accept
    iifname . arp saddr ip @allowed accept
    iifname "router" ip saddr 198.51.100.0/24 accept
    ether type { ip, arp } counter name foreign drop
    ether type ip6 ip6 saddr != { ::, fe80::/10 } counter name foreign drop
  }
}
"#;

/// The underlay of one lab. Clones are handles to the same underlay.
#[derive(Debug, Clone)]
pub struct Underlay {
    parts: Arc<Parts>,
}

#[derive(Debug)]
struct Parts {
    lab: Lab,
    switch: Netns,
    router: Netns,
    outside: Netns,
}

impl Underlay {
    /// Builds switch, router and the host outside.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn new(lab: &Lab) -> Result<Self, LabError> {
        let switch = lab.netns("switch")?;
        let router = lab.netns("router")?;
        let outside = lab.netns("outside")?;
        switch.ip([
            "link add br0 type bridge forward_delay 0 mcast_snooping 0",
            "link set br0 up",
            &format!(
                "link add router type veth peer name eth0 netns {}",
                router.name()
            ),
            "link set router master br0 up",
        ])?;
        // Only the rules of the bridge family filter frames.
        for hook in ["arptables", "ip6tables", "iptables"] {
            let key = format!("bridge/bridge-nf-call-{hook}");
            if switch.sysctl(&key).is_ok() {
                switch.set_sysctl(&key, "0")?;
            }
        }
        switch.nft(SWITCH_RULES)?;
        router.ip([
            &format!("addr add {ROUTER}/24 dev eth0"),
            "link set eth0 up",
            &format!(
                "link add eth1 type veth peer name eth0 netns {}",
                outside.name()
            ),
            "addr add 198.51.100.1/24 dev eth1",
            "link set eth1 up",
        ])?;
        router.set_sysctl("ipv4/ip_forward", "1")?;
        outside.ip([
            &format!("addr add {OUTSIDE}/24 dev eth0"),
            "link set eth0 up",
            "route add 192.0.2.0/24 via 198.51.100.1",
        ])?;
        let underlay = Self {
            parts: Arc::new(Parts {
                lab: lab.clone(),
                switch,
                router,
                outside,
            }),
        };
        underlay.allow("router", ROUTER)?;
        Ok(underlay)
    }

    /// The underlay of a lab that another program has created.
    #[must_use]
    pub fn existing(lab: &Lab) -> Self {
        let [switch, router, outside] =
            ["switch", "router", "outside"].map(|name| Netns::existing(lab, name));
        Self {
            parts: Arc::new(Parts {
                lab: lab.clone(),
                switch,
                router,
                outside,
            }),
        }
    }

    /// Connects a new namespace to the switch, as the node `name` (at most 15
    /// bytes) with this address. It has strict `rp_filter`, no forwarding, and a
    /// default route to the host outside.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn plug(&self, name: &str, address: Ipv4Addr, mtu: u32) -> Result<Netns, LabError> {
        self.plug_machine(name, address, mtu, None)
    }

    /// As [`Underlay::plug`], with the MAC that the machine had before: it keeps that
    /// when it is rebooted.
    ///
    /// # Errors
    /// As [`Underlay::plug`].
    pub fn plug_again(
        &self,
        name: &str,
        address: Ipv4Addr,
        mtu: u32,
        mac: &str,
    ) -> Result<Netns, LabError> {
        self.plug_machine(name, address, mtu, Some(mac))
    }

    fn plug_machine(
        &self,
        name: &str,
        address: Ipv4Addr,
        mtu: u32,
        own_mac: Option<&str>,
    ) -> Result<Netns, LabError> {
        let mac = own_mac.map_or(String::new(), |own| format!("address {own} "));
        let netns = self.lab().netns(name)?;
        for (key, value) in [
            ("ipv4/conf/all/rp_filter", "1"),
            ("ipv4/conf/default/rp_filter", "1"),
            ("ipv4/ip_forward", "0"),
            // Duplicate address detection would change addresses for two seconds.
            ("ipv6/conf/default/accept_dad", "0"),
        ] {
            netns.set_sysctl(key, value)?;
        }
        let inside = netns.name();
        self.switch().ip([
            format!(
                "link add {name} mtu {mtu} type veth peer name eth0 {mac}mtu {mtu} netns {inside}"
            ),
            format!("link set {name} master br0 up"),
        ])?;
        self.allow(name, address)?;
        netns.ip([
            format!("addr add {address}/24 dev eth0"),
            "link set eth0 up".to_owned(),
            format!("route add default via {ROUTER}"),
        ])?;
        // The kernel enables IPv6 on the link and adds its routes only then.
        wait_until("eth0 to be up", Duration::from_secs(10), || {
            let links = netns.json("ip -j link show eth0");
            match links.map(|links| links[0]["operstate"] == "UP") {
                Ok(true) => Ok(()),
                Ok(false) => Err("it is down".to_owned()),
                Err(error) => Err(error.chain()),
            }
        })?;
        Ok(netns)
    }

    /// The MAC of a node's `eth0`.
    ///
    /// # Errors
    /// The namespace has no `eth0`.
    pub fn mac(netns: &Netns) -> Result<String, LabError> {
        let command = "ip -j link show eth0";
        let links = netns.json(command)?;
        let mac = links[0]["address"].as_str().map(ToOwned::to_owned);
        mac.ok_or_else(|| LabError::Output {
            command: command.to_owned(),
            expected: "a link with a MAC",
            output: links.to_string(),
        })
    }

    /// Removes the port of `name` immediately, so that the next node can have the
    /// name. Otherwise it is removed some time after its namespace.
    pub fn unplug(&self, name: &str, address: Ipv4Addr) {
        // It is no error if either does not exist.
        let _ = self.disallow(name, address);
        let _ = self.switch().ip([format!("link del {name}")]);
    }

    /// The lab that owns it.
    #[must_use]
    pub fn lab(&self) -> &Lab {
        &self.parts.lab
    }

    /// The switch: bridge `br0`, one port per node, named as the node.
    #[must_use]
    pub fn switch(&self) -> &Netns {
        &self.parts.switch
    }

    /// The nodes' router: `eth0` leads to the switch, `eth1` to the host outside.
    #[must_use]
    pub fn router(&self) -> &Netns {
        &self.parts.router
    }

    /// The host outside, [`OUTSIDE`].
    #[must_use]
    pub fn outside(&self) -> &Netns {
        &self.parts.outside
    }

    /// The node `node<index>`: 192.0.2.(10 + index), pods in 10.244.index.0/24.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn node(&self, index: u8) -> Result<Node, LabError> {
        Node::new(self, NodeSpec::numbered(index))
    }

    /// Lets the switch accept frames with this source address on this port.
    ///
    /// # Errors
    /// [`LabError::Failed`] with nft's error.
    pub fn allow(&self, port: &str, source: Ipv4Addr) -> Result<(), LabError> {
        let rule = format!("add element bridge lab allowed {{ \"{port}\" . {source} }}");
        self.switch().nft(&rule)
    }

    /// Lets the switch accept frames with any source in `network` on this port.
    ///
    /// # Errors
    /// [`LabError::Failed`] with nft's error.
    pub fn allow_all(&self, port: &str, network: Ipv4Network) -> Result<(), LabError> {
        let elements = network
            .iter()
            .map(|source| format!("\"{port}\" . {source}"))
            .collect::<Vec<_>>()
            .join(", ");
        let rule = format!("add element bridge lab allowed {{ {elements} }}");
        self.switch().nft(&rule)
    }

    /// Lets the switch drop frames with this source address on this port again.
    ///
    /// # Errors
    /// [`LabError::Failed`] with nft's error.
    pub fn disallow(&self, port: &str, source: Ipv4Addr) -> Result<(), LabError> {
        let rule = format!("delete element bridge lab allowed {{ \"{port}\" . {source} }}");
        self.switch().nft(&rule)
    }

    /// The number of frames that the switch has dropped for a foreign source.
    ///
    /// # Errors
    /// The counter cannot be read.
    pub fn foreign_frames(&self) -> Result<u64, LabError> {
        let command = "nft -j list counter bridge lab foreign";
        let counters = self.switch().json(command)?;
        counters["nftables"]
            .as_array()
            .into_iter()
            .flatten()
            .find_map(|object| object["counter"]["packets"].as_u64())
            .ok_or_else(|| LabError::Output {
                command: command.to_owned(),
                expected: "a counter",
                output: counters.to_string(),
            })
    }
}
