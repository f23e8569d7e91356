//! Which addresses one end of a packet counts as when it is compared with CIDRs.

use std::net::IpAddr;

use ipnetwork::IpNetwork;

/// The addresses of one end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndAddresses {
    /// The one that is in the packet.
    pub address: IpAddr,
    /// Those that count instead of it: those of a Node, of the same family, for its address
    /// on the overlay. Empty for everything else.
    pub aliases: Vec<IpAddr>,
}

impl EndAddresses {
    /// Whether a CIDR without its exceptions has the end.
    ///
    /// A Node's address on the overlay is part of the pods' range, and who allows that range
    /// or excepts it means pods: the ports of a node's own programs are not theirs. An
    /// exception of one of the Node's addresses means the Node.
    pub fn is_in(&self, cidr: &IpNetwork, except: &[IpNetwork]) -> bool {
        let is_excepted = |address: &IpAddr| except.iter().any(|one| one.contains(*address));
        let counts = self.counting();
        counts.iter().any(|one| cidr.contains(*one)) && !counts.iter().any(is_excepted)
    }

    /// The addresses that count.
    pub fn counting(&self) -> &[IpAddr] {
        if self.aliases.is_empty() {
            std::slice::from_ref(&self.address)
        } else {
            &self.aliases
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_meant_by_its_own_addresses_and_not_by_the_pods_range() {
        let node = EndAddresses {
            address: "10.244.2.0".parse().unwrap(),
            aliases: ["192.0.2.2", "198.51.100.2"]
                .map(|one| one.parse().unwrap())
                .into(),
        };
        let pod = EndAddresses {
            address: "10.244.2.5".parse().unwrap(),
            aliases: Vec::new(),
        };
        for (cidr, except, has_node, has_pod) in [
            ("0.0.0.0/0", None, true, true),
            ("0.0.0.0/0", Some("10.244.0.0/16"), true, false),
            ("0.0.0.0/0", Some("198.51.100.2/32"), false, true),
            ("10.244.0.0/16", None, false, true),
            ("10.244.0.0/16", Some("10.244.2.0/24"), false, false),
            ("192.0.2.0/24", None, true, false),
            ("203.0.113.0/24", None, false, false),
        ] {
            let block = cidr.parse().unwrap();
            let holes: Vec<IpNetwork> = except.iter().map(|one| one.parse().unwrap()).collect();
            let seen = [&node, &pod].map(|end| end.is_in(&block, &holes));
            assert_eq!(seen, [has_node, has_pod], "{cidr} except {except:?}");
        }
    }
}
