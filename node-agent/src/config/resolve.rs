//! From what was typed to [`Config`]: the rules that concern more than one flag,
//! and the defaults that come from the machine.

use std::net::{IpAddr, SocketAddr};

use ipnetwork::IpNetwork;

use super::defaults::ONCE_LIMIT;
use super::parse::ServedAt;
use super::{Config, Family, Flags, MetricsAuth, Mtu, SourceConfig, parse};
use tweed_core::mtu::IPV6_MIN;
use tweed_planner::services::{NodePortAddresses, Options};
use tweed_watch::client::Access;

/// Why flags that are each valid contradict each other, or why they do not say the node's name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(String);

/// A flag that gives an address to listen on, and the address.
type Listener = (&'static str, SocketAddr);

/// The machine's host name.
///
/// # Errors
/// It cannot be read, or is not UTF-8.
pub fn host_name() -> Result<String, String> {
    nix::unistd::gethostname()
        .map_err(|error| error.to_string())?
        .into_string()
        .map_err(|name| format!("{} is not UTF-8", name.display()))
}

impl Flags {
    /// Makes the configuration. `host_name` is called only if no node name was
    /// typed.
    ///
    /// # Errors
    /// [`ConfigError`] with the flags that contradict each other.
    pub fn resolve(
        self,
        host_name: impl FnOnce() -> Result<String, String>,
    ) -> Result<Config, ConfigError> {
        check_cluster_cidrs(&self.cluster_cidr)?;
        check_underlay(self.underlay, self.underlay_family)?;
        check_mtu(self.mtu, &self.cluster_cidr)?;
        check_listeners(&self.listeners())?;
        if self.nodes.is_some() && self.metrics_auth == MetricsAuth::TokenReview {
            let why = "--metrics-auth token-review asks an API server, and with --nodes there is none; leave it at none, and --metrics-addr on a loopback address";
            return Err(ConfigError(why.to_owned()));
        }
        let node_name = match self.node_name {
            Some(name) => name,
            None => node_name_of(host_name())?,
        };
        let services = self.services.then(|| Options {
            node_name: node_name.clone(),
            node_port_addresses: NodePortAddresses {
                primary: self.nodeport_addresses.contains(&ServedAt::Primary),
                networks: networks(&self.nodeport_addresses).collect(),
            },
            external_ips: self.external_ips,
            load_balancer_cidrs: networks(&self.load_balancer_cidrs).collect(),
        });
        Ok(Config {
            source: match self.nodes {
                Some(file) => SourceConfig::File(file),
                None => SourceConfig::Kubernetes(match self.kubeconfig {
                    Some(file) => Access::Kubeconfig(file),
                    None => Access::InCluster {
                        server: self.api_server,
                    },
                }),
            },
            overlay: tweed_planner::config::Config {
                node_name,
                backend: self.backend,
                cluster_cidrs: self.cluster_cidr,
                vni: self.vni,
                vxlan_port: self.vxlan_port,
                underlay: self.underlay,
                underlay_family: self
                    .underlay_family
                    .or_else(|| self.underlay.map(|cidr| Family::of(cidr.ip()))),
                mtu: self.mtu,
                masquerade: self.masquerade,
                masquerade_ipv6: self.masquerade_ipv6,
                masquerade_nodes: self.masquerade_nodes,
            },
            probe_peers: self.probe_peers && !self.once,
            policy: self.policy,
            policy_log: self.policy_log,
            policy_wait: self.policy_wait,
            conntrack_limits: services.is_some() && self.conntrack_limits,
            services,
            fast_path: self.fast_path,
            fast_path_flows: self.fast_path_flows,
            bpf_dir: self.bpf_dir,
            services_health_addr: self.services_health_addr,
            services_metrics_addr: self.services_metrics_addr,
            metrics_addr: self.metrics_addr,
            metrics_auth: self.metrics_auth,
            health_addr: self.health_addr,
            cni_conf_dir: self.cni_conf_dir,
            cni_bin_dir: self.cni_bin_dir,
            run_dir: self.run_dir,
            sysctl_dir: self.sysctl_dir,
            boot_id_file: self.boot_id_file,
            nft: self.nft,
            once: self.once,
            once_limit: ONCE_LIMIT,
            log_format: self.log_format,
            log_level: self.log_level,
        })
    }
}

impl Flags {
    /// Where the agent listens.
    fn listeners(&self) -> Vec<Listener> {
        let of_services = [
            ("services-health-addr", self.services_health_addr),
            ("services-metrics-addr", self.services_metrics_addr),
        ];
        let served = of_services.into_iter().filter(|_| self.services);
        let always = [
            ("health-addr", self.health_addr),
            ("metrics-addr", self.metrics_addr),
        ];
        always.into_iter().chain(served).collect()
    }
}

/// The networks that these parts name.
fn networks(parts: &[ServedAt]) -> impl Iterator<Item = IpNetwork> {
    let unspecified = [IpAddr::from([0; 4]), IpAddr::from([0; 16])];
    // A prefix of no bits is valid for every address.
    let all = unspecified.map(|ip| IpNetwork::new(ip, 0).ok());
    parts.iter().flat_map(move |part| {
        let networks = match part {
            ServedAt::Primary => [None, None],
            ServedAt::All => all,
            ServedAt::Network(network) => [Some(*network), None],
        };
        networks.into_iter().flatten()
    })
}

fn node_name_of(host_name: Result<String, String>) -> Result<String, ConfigError> {
    let name = host_name.map_err(|why| {
        ConfigError(format!(
            "cannot read the host name: {why}; pass --node-name"
        ))
    })?;
    parse::node_name(&name.to_lowercase()).map_err(|_| {
        ConfigError(format!(
            "the host name {name:?} cannot be a Node's name; pass --node-name"
        ))
    })
}

fn check_cluster_cidrs(cidrs: &[IpNetwork]) -> Result<(), ConfigError> {
    for (index, &cidr) in cidrs.iter().enumerate() {
        if let Some(why) = unusable(cidr) {
            return Err(ConfigError(format!(
                "--cluster-cidr {cidr}: {why}; allowed is a range of unicast addresses that only pods have, such as 10.244.0.0/16"
            )));
        }
        let family = Family::of(cidr.ip());
        let earlier = cidrs[..index].iter().find(|c| Family::of(c.ip()) == family);
        if let Some(&first) = earlier {
            return Err(ConfigError(format!(
                "--cluster-cidr {first},{cidr}: both are {family}; allowed is one per family"
            )));
        }
    }
    Ok(())
}

fn unusable(cidr: IpNetwork) -> Option<&'static str> {
    const LINK_LOCAL: Option<&str> = Some("that is a link-local range");
    match cidr.network() {
        _ if cidr.prefix() == 0 => Some("that is every address there is"),
        ip if ip.is_loopback() => Some("that is a loopback range"),
        ip if ip.is_multicast() => Some("that is a multicast range"),
        IpAddr::V4(ip) if ip.is_link_local() => LINK_LOCAL,
        IpAddr::V6(ip) if ip.is_unicast_link_local() => LINK_LOCAL,
        _ => None,
    }
}

fn check_underlay(underlay: Option<IpNetwork>, family: Option<Family>) -> Result<(), ConfigError> {
    match (underlay, family) {
        (Some(underlay), Some(family)) if Family::of(underlay.ip()) != family => {
            Err(ConfigError(format!(
                "--underlay {underlay} is not {family}, which --underlay-family asks for; give both the same family"
            )))
        }
        _ => Ok(()),
    }
}

fn check_mtu(mtu: Mtu, cluster_cidrs: &[IpNetwork]) -> Result<(), ConfigError> {
    let ipv6 = cluster_cidrs.iter().find(|cidr| cidr.is_ipv6());
    match (mtu, ipv6) {
        (Mtu::Fixed(mtu), Some(&cidr)) if mtu < IPV6_MIN => Err(ConfigError(format!(
            "--mtu {mtu} is too small for the IPv6 pods of --cluster-cidr {cidr}; allowed is auto, or {IPV6_MIN} and more"
        ))),
        _ => Ok(()),
    }
}

fn check_listeners(listeners: &[Listener]) -> Result<(), ConfigError> {
    // On [::] the kernel listens for IPv4 too.
    let all = |a: IpAddr, b: IpAddr| a.is_unspecified() && (a.is_ipv6() || b.is_ipv4());
    let are_one = |one: SocketAddr, other: SocketAddr| {
        let (a, b) = (one.ip(), other.ip());
        one.port() == other.port() && (a == b || all(a, b) || all(b, a))
    };
    for (index, &(flag, addr)) in listeners.iter().enumerate() {
        let mut others = listeners[index + 1..].iter();
        if let Some((other_flag, other)) = others.find(|other| are_one(addr, other.1)) {
            return Err(ConfigError(format!(
                "--{flag} {addr} and --{other_flag} {other} are one address; give them two ports"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
