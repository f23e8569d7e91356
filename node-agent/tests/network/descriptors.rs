//! An agent that may have few files open, on a node for which tenants create many Services
//! with health checks: it keeps enough descriptors for itself.

use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::{fs, os::unix::process::CommandExt as _};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::node::{Node, eventually, manifest, run, succeeds};
use crate::service_health::{answers, get};

/// Where the probes ask.
pub const PROBES: &str = "127.0.0.1:9117";
/// That of the namespace of the calling thread.
const FORWARDING: &str = "/proc/sys/net/ipv4/ip_forward";
/// The number of Services, and the first of their ports.
const SERVICES: u16 = 600;
const FIRST: u16 = 31_000;

/// The program itself, as its limits are those of a whole process. Dropped, it is killed.
pub struct Program(Child);

impl Program {
    /// Starts it on this node with these limits of open files.
    pub fn start(node: &Node, soft: u32, hard: u32) -> Self {
        for folder in ["run", "net.d", "bin"] {
            fs::create_dir_all(node.path(folder)).unwrap();
        }
        let limits = format!(
            "ulimit -Sn {soft} && ulimit -Hn {hard} && ulimit -v 4000000 && exec \"$0\" \"$@\""
        );
        let program = std::env::var_os("CARGO_BIN_EXE_tweed-agent").unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", &limits]).arg(program);
        command.args(["--node-name", "n1", "--services", "on"]);
        for (flag, name) in [
            ("--nodes", "nodes.yaml"),
            ("--run-dir", "run"),
            ("--cni-conf-dir", "net.d"),
            ("--cni-bin-dir", "bin"),
        ] {
            command.arg(flag).arg(node.path(name));
        }
        let log = fs::File::create(node.path("log")).unwrap();
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        Self(command.process_group(0).spawn().unwrap())
    }

    /// Ends it by SIGTERM, and waits until it has ended.
    pub fn ends(mut self) {
        kill(Pid::from_raw(self.0.id().cast_signed()), Signal::SIGTERM).unwrap();
        eventually(|| match self.0.try_wait().unwrap() {
            Some(status) if status.success() => Ok(()),
            other => Err(format!("{other:?}")),
        });
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn services(ports: impl Iterator<Item = u16>) -> String {
    let service = |port: u16| {
        let n = port - FIRST;
        let (ip, node_port) = (format!("10.96.{}.{}", n / 200, n % 200 + 1), n + 30_000);
        format!(
            "---\napiVersion: v1\nkind: Service\nmetadata: {{namespace: shop, name: web-{n}}}\n\
             spec: {{type: LoadBalancer, clusterIP: {ip}, clusterIPs: [{ip}], \
             externalTrafficPolicy: Local, healthCheckNodePort: {port}, \
             ports: [{{name: http, protocol: TCP, port: 80, nodePort: {node_port}}}]}}\n"
        )
    };
    let services = ports.map(service).collect::<String>();
    [manifest(1), manifest(2), services].concat()
}

fn connected(port: u16) -> Option<TcpStream> {
    TcpStream::connect(("192.0.2.1", port)).ok()
}

#[test]
fn health_checks_of_services_leave_the_agent_its_descriptors() {
    for (soft, hard) in [(256, 512), (256, 256)] {
        let node = Node::new();
        let all = FIRST..FIRST + SERVICES;
        node.write_nodes(&services(all.clone()));
        let program = Program::start(&node, soft, hard);
        // Half of a half of the limit is for them, and those are the first.
        let served = FIRST + u16::try_from(hard / 4).unwrap();
        let rest = all.end - served;
        let named = format!(
            "of {rest} Services, as the agent may have only {hard} files open: shop/web-{} ({served}), ",
            served - FIRST
        );
        answers(PROBES, "/readyz", 200, &named);
        eventually(|| match connected(served - 1) {
            Some(_) => Ok(()),
            None => Err("nobody listens there".to_owned()),
        });
        let open: Vec<u16> = all
            .clone()
            .filter(|port| connected(*port).is_some())
            .collect();
        assert_eq!(open, (FIRST..served).collect::<Vec<_>>());

        // Strangers take all connections that they get, and the agent goes on.
        let held: Vec<_> = (FIRST..served)
            .chain(FIRST..served)
            .map(connected)
            .collect();
        for addr in [PROBES, crate::service_health::NODE] {
            answers(addr, "/healthz", 200, "");
        }
        run("nft", "delete table inet tweed");
        fs::write(FORWARDING, "0").unwrap();
        eventually(|| {
            let forwards = fs::read_to_string(FORWARDING).unwrap();
            if forwards == "1\n" && succeeds("nft", "list chain inet tweed postrouting_nat") {
                Ok(())
            } else {
                Err(get(PROBES, "/readyz"))
            }
        });
        answers(PROBES, "/readyz", 200, &named);
        let log = fs::read_to_string(node.path("log")).unwrap();
        assert!(!log.contains("Too many open files"), "{log}");
        drop(held);

        // What gets room is listened on.
        node.write_nodes(&services(all.end - 10..all.end));
        eventually(|| {
            if (all.end - 10..all.end).all(|port| connected(port).is_some()) {
                Ok(())
            } else {
                Err(get(PROBES, "/readyz"))
            }
        });
        assert!(!get(PROBES, "/readyz").contains("service-health-port"));
        program.ends();
    }
}
