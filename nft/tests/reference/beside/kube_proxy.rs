//! kube-proxy's own proxier as a program, in the namespace of a node.

use std::io::{BufRead, BufReader, Write};
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::json;

use crate::cluster::{Cluster, change};
use crate::netns::Netns;

/// How kube-proxy writes to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Nftables,
    Iptables,
}

/// The running program.
pub struct KubeProxy {
    program: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    mode: Mode,
    known: Option<Cluster>,
}

impl KubeProxy {
    /// Starts it in a namespace.
    pub fn start(netns: &Netns, mode: Mode) -> Self {
        // This program is in target/<profile>/deps.
        let own = std::env::current_exe().unwrap();
        let tools = own.ancestors().nth(3).unwrap().join("tools/bin");
        let folder = std::env::var_os("TWEED_TOOLS_DIR").map_or(tools, PathBuf::from);
        let path = folder.join("services-judge");
        let mut command = Command::new(&path);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut program = netns.enter(|| command.spawn()).unwrap_or_else(|error| {
            panic!(
                "{}: {error}: run `conformance/setup.sh test`",
                path.display()
            )
        });
        Self {
            input: program.stdin.take().unwrap(),
            output: BufReader::new(program.stdout.take().unwrap()),
            program,
            mode,
            known: None,
        }
    }

    /// Sends Services on as those of a cluster say.
    pub fn serve(&mut self, cluster: &Cluster) {
        let old = self.known.as_ref();
        let services = old.map_or(&[][..], |old| &old.services);
        let (services, removed_services) = change(services, &cluster.services);
        let slices = old.map_or(&[][..], |old| &old.slices);
        let (slices, removed_slices) = change(slices, &cluster.slices);
        let primary = |is_v4: bool| {
            let mut all = cluster.node_ips.iter();
            all.find(|ip: &&IpAddr| ip.is_ipv4() == is_v4)
        };
        let options = json!({
            "mode": match self.mode {
                Mode::Nftables => "nftables",
                Mode::Iptables => "iptables",
            },
            "nodeName": cluster.node_name,
            "nodeIPs": [primary(true), primary(false)],
            "clusterCIDRs": cluster.cluster_cidrs,
            "nodePortAddresses": cluster.node_port_addresses,
        });
        let line = json!({
            "options": options,
            "zone": cluster.zone,
            "serviceCIDRs": cluster.service_cidrs,
            "services": services,
            "endpointSlices": slices,
            "removedServices": removed_services,
            "removedEndpointSlices": removed_slices,
        });
        writeln!(self.input, "{line}").unwrap();
        let mut answer = String::new();
        self.output.read_line(&mut answer).unwrap();
        assert_eq!(answer, "{}\n", "in mode {:?}", self.mode);
        self.known = Some(cluster.clone());
    }
}

impl Drop for KubeProxy {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}
