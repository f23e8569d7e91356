//! The sysctls of the fast path: connection tracking does not see the packets that skip the
//! kernel's path.
//!
//! | sysctl | value | why |
//! |---|---|---|
//! | `nf_conntrack_tcp_be_liberal` | 1 | the next packet that it sees is far beyond the window that it knows, and would be dropped as invalid |
//! | `nf_conntrack_tcp_ignore_invalid_rst` | 1 | so would the reset that ends such a connection |
//!
//! They stay when the fast path is switched off, as conntrack never catches up with a connection
//! that was on it. An uninstallation restores them.

use std::fs;

use tweed_core::sysctl::{TCP_BE_LIBERAL, TCP_IGNORE_INVALID_RST};

use super::{Sysctl, Sysctls};
use crate::reconcile::outcome::{ObjectKind, Outcome};

/// The kernel's default of `net.ipv4.ip_local_port_range`.
const LOCAL_PORTS: (u16, u16) = (32_768, 60_999);

fn wanted() -> [Sysctl; 2] {
    [TCP_BE_LIBERAL, TCP_IGNORE_INVALID_RST].map(|path| Sysctl::machine(path, 1))
}

impl Sysctls {
    /// Has conntrack take packets of connections for valid that it has not seen the packets
    /// before of.
    ///
    /// # Errors
    /// Why one cannot be set.
    pub fn let_conntrack_miss_packets(&self) -> Result<Outcome, String> {
        let mut outcome = Outcome::default();
        let mut found = self.found.read().map_err(|error| error.to_string())?;
        let wanted = wanted();
        let met = self.remember_met(&wanted, &mut found);
        met.map_err(|error| error.to_string())?;
        for sysctl in &wanted {
            let tried = self.write_one(sysctl, Some(&mut found));
            let written = tried.map_err(|error| {
                let (name, value) = (sysctl.name(), sysctl.value);
                format!("{name} cannot be set to {value}: {error}; set it on the host")
            })?;
            outcome.wrote(ObjectKind::Sysctl, written.into(), &sysctl.path);
        }
        Ok(outcome)
    }

    /// The range of ports of this machine's own packets: `net.ipv4.ip_local_port_range`.
    pub fn local_ports(&self) -> (u16, u16) {
        let read = fs::read_to_string(self.net_dir.join("ipv4/ip_local_port_range"));
        let range = read.unwrap_or_default();
        let mut ports = range.split_whitespace().map(str::parse);
        match (ports.next(), ports.next()) {
            (Some(Ok(first)), Some(Ok(last))) => (first, last),
            _ => LOCAL_PORTS,
        }
    }
}
