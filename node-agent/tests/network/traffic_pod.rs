//! A local pod that sends and receives. The plugin's part is played here: a record with
//! the pod's name, and a link into a namespace with an address and a route.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use tweed_core::attachment::{Attachment, ContainerId, IfName, NetworkName, PodName};
use tweed_core::mac::Mac;
use tweed_ipam::record::{Owner, Process, Record};
use tweed_ipam::store::Store;

use crate::namespace::Namespace;
use crate::node::{Node, eventually, ip};
use crate::pod::{Pod, WAIT, only};

/// Time that a connection may take. One that is dropped takes all of it.
pub const CONNECT: Duration = Duration::from_millis(700);

/// A pod of the namespace `default` that listens on TCP ports 80 and 81.
pub struct TrafficPod {
    pub address: String,
    /// The address that it listens on: that of all its families.
    any: IpAddr,
    namespace: Namespace,
    attachment: Attachment,
    store: Store,
    listeners: Vec<TcpListener>,
}

impl TrafficPod {
    /// The pod of this name with the address 10.0.1.`host`.
    pub fn add(node: &Node, name: &str, host: u8) -> Self {
        Self::add_with(node, name, host, &[format!("10.0.1.{host}")])
    }

    /// The same with the address fd00:0:0:1::`host` besides.
    pub fn add_dual(node: &Node, name: &str, host: u8) -> Self {
        let addresses = [format!("10.0.1.{host}"), format!("fd00:0:0:1::{host:x}")];
        Self::add_with(node, name, host, &addresses)
    }

    fn add_with(node: &Node, name: &str, host: u8, addresses: &[String]) -> Self {
        let namespace = Namespace::new();
        let attachment = Attachment {
            network: NetworkName::new("tweed").unwrap(),
            container_id: ContainerId::new(name).unwrap(),
            ifname: IfName::new("eth0").unwrap(),
        };
        let store = Pod::store(node);
        let link = attachment.link_name();
        let by = Process::current().unwrap();
        let mut seed = Record::adding(attachment.clone(), Owner::Tweed, by);
        seed.link = Some(link.clone());
        seed.host_mac = Some(Mac([2, 0, 0, 0, 1, host]));
        seed.pod_mac = Some(Mac([2, 0, 0, 0, 0, host]));
        seed.mtu = Some(1450);
        seed.pod_uid = Some(format!("uid-{name}"));
        seed.pod = Some(PodName {
            namespace: "default".to_owned(),
            name: name.to_owned(),
        });
        let mut locked = store.lock(WAIT).unwrap();
        let held = locked.reserve(&seed, &only(addresses), &[]).unwrap();
        plug(&namespace, &attachment, addresses, host);
        locked.mark_live(&held).unwrap();
        drop(locked);
        let any: IpAddr = match addresses {
            [_] => Ipv4Addr::UNSPECIFIED.into(),
            _ => Ipv6Addr::UNSPECIFIED.into(),
        };
        let listen = move || [80, 81].map(|port| TcpListener::bind((any, port)).unwrap());
        let listeners = namespace.run(listen).into();
        Self {
            address: addresses[0].clone(),
            any,
            namespace,
            attachment,
            store,
            listeners,
        }
    }

    /// Whether a connection from here to an address comes about.
    pub fn connects_to(&self, target: &str) -> bool {
        let target = target.parse().unwrap();
        self.run(move || connects(target))
    }

    /// Runs `work` in the pod's namespace.
    pub fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        self.namespace.run(work)
    }

    /// Whether a connection from here to `port` of `to` comes about.
    pub fn connects(&self, to: &Self, port: u16) -> bool {
        let target = to.socket(port);
        self.namespace.run(move || connects(target))
    }

    /// A connection from here to port 80 of `to`, and its other end.
    pub fn connection(&self, to: &Self) -> (TcpStream, TcpStream) {
        to.accept_all();
        let target = to.socket(80);
        let stream = (self.namespace).run(move || TcpStream::connect_timeout(&target, CONNECT));
        let accepted = to.listeners[0].accept().unwrap().0;
        accepted.set_nonblocking(false).unwrap();
        (stream.unwrap(), accepted)
    }

    /// A socket of UDP here that never waits.
    pub fn udp_socket(&self, port: u16) -> UdpSocket {
        let any = self.any;
        let bind = move || UdpSocket::bind((any, port)).unwrap();
        let socket = self.namespace.run(bind);
        socket.set_nonblocking(true).unwrap();
        socket
    }

    /// Where it listens; connections that wait there are taken off first, as the queue
    /// for them is short.
    pub fn socket(&self, port: u16) -> SocketAddr {
        self.accept_all();
        format!("{}:{port}", self.address).parse().unwrap()
    }

    /// The other ends of the connections that wait here; they are ended.
    pub fn accept_all(&self) -> Vec<SocketAddr> {
        let mut peers = Vec::new();
        for listener in &self.listeners {
            listener.set_nonblocking(true).unwrap();
            loop {
                match listener.accept() {
                    Ok((_, peer)) => peers.push(peer),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => panic!("{error}"),
                }
            }
        }
        peers
    }

    /// Waits until connections to `port` of `to` come about, or no longer do.
    pub fn eventually_connects(&self, to: &Self, port: u16, expected: bool) {
        eventually(|| match self.connects(to, port) {
            connects if connects == expected => Ok(()),
            _ => Err(format!(
                "{} to {}:{port}, expected {expected}",
                self.address, to.address
            )),
        });
    }

    /// Removes link and record, as DEL does.
    pub fn delete(self) {
        ip(&format!("link delete {}", self.attachment.link_name()));
        let mut locked = self.store.lock(WAIT).unwrap();
        locked.free(&self.attachment).unwrap();
    }
}

/// Whether a connection from the caller's namespace comes about.
pub fn connects(target: SocketAddr) -> bool {
    TcpStream::connect_timeout(&target, CONNECT).is_ok()
}

/// Makes the link as the plugin does.
fn plug(namespace: &Namespace, attachment: &Attachment, addresses: &[String], host: u8) {
    let (link, pid) = (attachment.link_name(), namespace.pid());
    ip(&format!(
        "link add {link} address 02:00:00:00:01:{host:02x} mtu 1450 group 116 type veth \
         peer name eth0 address 02:00:00:00:00:{host:02x} mtu 1450 netns {pid}"
    ));
    ip(&format!("link set {link} alias tweed:{attachment}"));
    ip(&format!("link set {link} up"));
    for address in addresses {
        ip(&format!(
            "neighbour add {address} lladdr 02:00:00:00:00:{host:02x} dev {link} nud permanent"
        ));
        let source = if address.contains(':') {
            ""
        } else {
            "scope link src 192.0.2.1"
        };
        ip(&format!(
            "route add {address} dev {link} {source} proto 116"
        ));
    }
    let addresses = addresses.to_owned();
    namespace.run(move || {
        ip("link set lo up");
        ip("link set eth0 up");
        for address in &addresses {
            let (gateway, usable_at_once) = if address.contains(':') {
                ("fe80::1", "nodad")
            } else {
                ("169.254.1.1", "")
            };
            ip(&format!("address add {address} dev eth0 {usable_at_once}"));
            ip(&format!(
                "neighbour add {gateway} lladdr 02:00:00:00:01:{host:02x} dev eth0 nud permanent"
            ));
            ip(&format!("route add default via {gateway} dev eth0 onlink"));
        }
    });
}
