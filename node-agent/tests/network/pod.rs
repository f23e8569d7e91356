//! A local pod. The plugin's part is played here: a record, and a link as it makes them.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use ipnetwork::IpNetwork;
use tweed_core::attachment::{Attachment, ContainerId, IfName, NetworkName};
use tweed_core::mac::Mac;
use tweed_ipam::ranges::{Range, RangeSet, RangeSets};
use tweed_ipam::record::{Owner, Process, Record};
use tweed_ipam::store::{Held, Store};

use crate::node::{Node, ip};

pub const WAIT: Duration = Duration::from_secs(30);

pub struct Pod {
    pub attachment: Attachment,
    pub store: Store,
    pub link: String,
    pub address: String,
    /// Shows that its ADD is at work.
    pub adding: Option<Held>,
}

impl Pod {
    pub fn store(node: &Node) -> Store {
        let data: PathBuf = node.path("run/ipam");
        Store::open(&data, &NetworkName::new("tweed").unwrap())
    }

    /// A pod as ADD leaves it.
    pub fn add(node: &Node, id: &str, address: &str) -> Self {
        let mut pod = Self::begin(node, id, address);
        let held = pod.adding.take().unwrap();
        pod.store.lock(WAIT).unwrap().mark_live(&held).unwrap();
        pod
    }

    /// A pod whose ADD has got as far as the link.
    pub fn begin(node: &Node, id: &str, address: &str) -> Self {
        let attachment = Attachment {
            network: NetworkName::new("tweed").unwrap(),
            container_id: ContainerId::new(id).unwrap(),
            ifname: IfName::new("eth0").unwrap(),
        };
        let mut pod = Self {
            store: Self::store(node),
            link: attachment.link_name(),
            attachment: attachment.clone(),
            address: address.to_owned(),
            adding: None,
        };
        let by = Process::current().unwrap();
        let mut seed = Record::adding(attachment.clone(), Owner::Tweed, by);
        seed.link = Some(pod.link.clone());
        seed.host_mac = Some(attachment.host_mac());
        seed.pod_mac = Some(Mac([2, 0, 0, 0, 0, 5]));
        seed.mtu = Some(1450);
        let store = pod.store.clone();
        let mut locked = store.lock(WAIT).unwrap();
        pod.adding = Some(locked.reserve(&seed, &only(&[address]), &[]).unwrap());
        // Held to the end: an agent would take a dead ADD away half made.
        let (link, mac) = (&pod.link, attachment.host_mac());
        ip(&format!(
            "link add {link} address {mac} mtu 1450 group 116 type veth peer name p{id}"
        ));
        ip(&format!("link set {link} alias tweed:{attachment}"));
        ip(&format!("link set p{id} up"));
        ip(&format!("link set {link} up"));
        ip(&format!(
            "neighbour add {address} lladdr 02:00:00:00:00:05 dev {link} nud permanent"
        ));
        ip(&if pod.is_ipv4() {
            format!("route add {address} dev {link} scope link src 192.0.2.1 proto 116")
        } else {
            format!("-6 route add {address} dev {link} proto 116")
        });
        drop(locked);
        pod
    }

    fn is_ipv4(&self) -> bool {
        !self.address.contains(':')
    }

    pub fn route(&self) -> String {
        let family = if self.is_ipv4() { 4 } else { 6 };
        ip(&format!("-{family} route show {}", self.address))
    }

    pub fn record(&self) -> Option<Record> {
        self.store.read(&self.attachment).unwrap()
    }

    pub fn whole(&self) -> Result<(), String> {
        let route = self.route();
        if route.lines().count() != 1 {
            return Err(format!("not one route: {route}"));
        }
        let state = [
            route,
            ip(&format!(
                "neighbour show {} dev {}",
                self.address, self.link
            )),
            ip(&format!("link show {}", self.link)),
        ]
        .join("\n");
        if state.contains(" master ") {
            return Err(format!("a port of another device: {state}"));
        }
        let scope = if self.is_ipv4() {
            " scope link src 192.0.2.1"
        } else {
            ""
        };
        let parts = [
            &format!("{} dev {} proto 116{scope}", self.address, self.link),
            &format!("link/ether {}", self.attachment.host_mac()),
            "lladdr 02:00:00:00:00:05 PERMANENT",
            "mtu 1450",
            "group 116",
            ",UP",
        ];
        match parts.iter().find(|part| !state.contains(**part)) {
            None => Ok(()),
            Some(part) => Err(format!("no `{part}` in {state}")),
        }
    }
}

/// Ranges that hold these addresses and no others.
pub fn only<T: AsRef<str>>(addresses: &[T]) -> RangeSets {
    let range_set = |address: &T| {
        let ip: IpAddr = address.as_ref().parse().unwrap();
        let prefix = if ip.is_ipv4() { 24 } else { 64 };
        let subnet = IpNetwork::new(ip, prefix).unwrap();
        let subnet = IpNetwork::new(subnet.network(), prefix).unwrap();
        let range = Range::new(subnet, Some(ip), Some(ip), None).unwrap();
        RangeSet::new(vec![range]).unwrap()
    };
    RangeSets::new(addresses.iter().map(range_set).collect()).unwrap()
}
