//! Services that claim what is not theirs: the API server of the agent, and this machine's
//! loopback addresses.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tweed_watch::client::{Access, ApiClient};

use super::{ON, Scene, endpoints, places, service};
use crate::node::{Agent, Node, eventually, ip};
use crate::traffic_pod::{CONNECT, TrafficPod, connects};

/// An API server with one Node, one Service and, if told so, an endpoint of that.
struct Api {
    address: SocketAddr,
    held: Arc<Held>,
}

struct Held {
    service: Value,
    has_endpoint: bool,
    /// The connections of watches, which stay open.
    watches: Mutex<Vec<TcpStream>>,
    /// How many watches there were.
    count: Mutex<usize>,
}

impl Api {
    /// At this port, or at a free one, of the node; `service` gets the port.
    fn start(port: u16, has_endpoint: bool, service: impl Fn(u16) -> Value) -> Self {
        let listener = TcpListener::bind(("192.0.2.1", port)).unwrap();
        let address = listener.local_addr().unwrap();
        let held = Arc::new(Held {
            service: service(address.port()),
            has_endpoint,
            watches: Mutex::default(),
            count: Mutex::default(),
        });
        let serving = Arc::clone(&held);
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let held = Arc::clone(&serving);
                std::thread::spawn(move || held.serve(connection.unwrap()));
            }
        });
        Self { address, held }
    }

    /// Ends all watches, so that the agent has to connect again.
    fn hang_up(&self) {
        for watch in self.held.watches.lock().unwrap().drain(..) {
            let _ = watch.shutdown(Shutdown::Both);
        }
    }

    fn watches(&self) -> usize {
        *self.held.count.lock().unwrap()
    }

    /// Starts an agent that has all from here.
    fn agent(&self, node: &Node) -> Agent {
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: it\n\
             contexts: [{{name: it, context: {{cluster: it, user: it}}}}]\n\
             clusters: [{{name: it, cluster: {{server: 'http://{}'}}}}]\n\
             users: [{{name: it, user: {{}}}}]\n",
            self.address
        );
        let path = node.path("kubeconfig");
        std::fs::write(&path, text).unwrap();
        let client = ApiClient::new(Access::Kubeconfig(path));
        let flags = [&ON[..], &["--policy", "off"]].concat();
        node.start_over(&flags, client)
    }

    /// Whether it answers who connects to it from here.
    fn answers(&self) -> Result<(), String> {
        let said = |mut stream: TcpStream| {
            stream.set_read_timeout(Some(CONNECT))?;
            stream.write_all(b"GET /api/v1/nodes HTTP/1.1\r\n\r\n")?;
            let mut text = [0; 12];
            stream.read_exact(&mut text).map(|()| text)
        };
        match TcpStream::connect_timeout(&self.address, CONNECT).and_then(said) {
            Ok(text) if text == *b"HTTP/1.1 200" => Ok(()),
            other => Err(format!("the API server's answer: {other:?}")),
        }
    }
}

impl Held {
    fn serve(&self, mut connection: TcpStream) {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            match connection.read_exact(&mut byte) {
                Ok(()) => head.extend(byte),
                Err(_) => return,
            }
        }
        let head = String::from_utf8(head).unwrap();
        let target = head.split(' ').nth(1).unwrap();
        if target.contains("watch=") {
            let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\
                        Transfer-Encoding: chunked\r\n\r\n";
            let _ = connection.write_all(head.as_bytes());
            self.watches.lock().unwrap().push(connection);
            *self.count.lock().unwrap() += 1;
            return;
        }
        let items = self.list(target);
        let list = json!({"metadata": {"resourceVersion": "1"}, "items": items}).to_string();
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n",
            list.len()
        );
        let _ = connection.write_all((head + &list).as_bytes());
    }

    fn list(&self, target: &str) -> Vec<Value> {
        let path = target.split('?').next().unwrap();
        match path.rsplit('/').next().unwrap() {
            "nodes" => vec![json!({
                "metadata": {"name": "n1"},
                "spec": {"podCIDRs": ["10.0.1.0/24"]},
                "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]},
            })],
            "services" => vec![self.service.clone()],
            "endpointslices" if self.has_endpoint => vec![json!({
                "metadata": {
                    "namespace": "shop",
                    "name": "web-1",
                    "labels": {"kubernetes.io/service-name": "web"},
                },
                "addressType": "IPv4",
                "endpoints": [{"addresses": ["10.0.1.6"], "conditions": {"ready": true}}],
                "ports": [{"name": "http", "protocol": "TCP", "port": 80}],
            })],
            _ => Vec::new(),
        }
    }
}

fn node() -> (Node, TrafficPod) {
    let node = Node::new();
    // The kernel translates what a node sends itself only after it has found a route.
    ip("route add default via 192.0.2.254");
    std::fs::create_dir_all(node.path("run")).unwrap();
    let pod = TrafficPod::add(&node, "b", 6);
    (node, pod)
}

/// A Service with a port at the API server's address, or a node port there.
fn claims(port: u16, node_port: u16) -> Value {
    json!({
        "metadata": {"namespace": "shop", "name": "web"},
        "spec": {
            "type": "LoadBalancer",
            "clusterIP": "10.96.0.10",
            "clusterIPs": ["10.96.0.10"],
            "ports": [
                {"name": "http", "protocol": "TCP", "port": port, "nodePort": node_port},
                {"name": "other", "protocol": "TCP", "port": 80, "nodePort": 30080},
            ],
        },
        "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}},
    })
}

/// Nothing would tell it any more that the address is gone.
fn agent_is_not_locked_out(api: &Api, node: &Node) {
    let agent = api.agent(node);
    agent.serves();
    let told = agent.complains("service-address-refused");
    assert!(told.contains("leads to the API server"), "{told}");
    // What is in force by then may be a first plan, which is followed by the next at once.
    agent.passes();
    api.answers().unwrap();
    let before = api.watches();
    api.hang_up();
    eventually(|| match api.watches() {
        now if now >= before + 4 => Ok(()),
        now => Err(format!("{now} watches after {before}")),
    });
}

#[test]
fn a_load_balancer_with_the_api_servers_address_locks_no_agent_out() {
    for has_endpoint in [false, true] {
        let (node, _pod) = node();
        let api = Api::start(0, has_endpoint, |port| claims(port, 0));
        agent_is_not_locked_out(&api, &node);
    }
}

#[test]
fn a_node_port_that_is_the_api_servers_locks_no_agent_out() {
    let (node, _pod) = node();
    let api = Api::start(30443, false, |port| claims(8080, port));
    agent_is_not_locked_out(&api, &node);
}

/// The stub of a resolver and whatever else listens there for this machine alone.
#[test]
fn a_load_balancer_of_loopback_addresses_leaves_the_nodes_own_ports_alone() {
    let status = "status: {loadBalancer: {ingress: [{ip: 127.0.0.1}, {ip: 127.0.0.53}, \
                  {ip: 192.0.2.1}]}}\n";
    let balancer = service().replace("NodePort,", "LoadBalancer,") + status;
    for hosts in [&[][..], &[6]] {
        let scene = Scene::new(&[balancer.clone(), endpoints(hosts)]);
        let servers =
            ["127.0.0.1:8080", "127.0.0.53:8080"].map(|at| TcpListener::bind(at).unwrap());
        let agent = scene.node.start(&ON);
        agent.serves();
        let told = agent.complains("service-address-refused");
        for part in ["shop/web", "127.0.0.1 is a loopback address", "127.0.0.53"] {
            assert!(told.contains(part), "{told}");
        }
        for server in servers {
            let address = server.local_addr().unwrap();
            assert!(connects(address), "{address}");
            server.set_nonblocking(true).unwrap();
            eventually(|| match server.accept() {
                Ok(_) => Ok(()),
                Err(error) => Err(format!("{address}: {error}")),
            });
        }
        // At its other address it is served.
        assert_eq!(scene.connects("192.0.2.1:8080"), !hosts.is_empty());
        let shown = places::place(&scene.node, &["127.0.0.1:8080"]);
        assert!(shown.contains("is a loopback address"), "{shown}");
    }
}
