//! The table's rules as text: a pure function of the config part of a
//! [`Ruleset`].
//!
//! [`crate::rules`] names sets and never addresses, so that Nodes come and go
//! without a rule changing. The table's comment carries a version: the format
//! and a hash of the text. Equal versions mean equal rules.

use sha2::{Digest, Sha256};

use crate::rules::{Chain, chains};
use crate::sets::{Contents, Element, FAMILIES, SETS};
use tweed_core::family::Family;
use tweed_planner::overlay::desired::Ruleset;

/// Family and name of the table.
pub const TABLE: &str = "inet tweed";

/// Version of the table's meaning: changes when the same text means something
/// else, such as a set that is filled differently, or when
/// [`crate::observe`] takes its digest otherwise.
const FORMAT: u32 = 1;

/// Where the table's chains stand among those of others at the same hook. All
/// stages are reserved here, those of Services and policies too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Before conntrack (−200): what is refused makes no entry there, and what
    /// need not be tracked is taken out.
    Raw,
    /// Destinations are rewritten: Services.
    Dnat,
    /// What may pass, by addresses after DNAT: policies, the VXLAN filter.
    Filter,
    /// Sources are rewritten: masquerading.
    Snat,
}

impl Stage {
    /// The priority: `linux/netfilter_ipv4.h`, `enum nf_ip_hook_priorities`.
    #[must_use]
    pub const fn priority(self) -> i32 {
        match self {
            Self::Raw => -300,
            Self::Dnat => -100,
            Self::Filter => 0,
            Self::Snat => 100,
        }
    }
}

/// The table without its elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skeleton {
    version: String,
    chains: Vec<Chain>,
}

impl Skeleton {
    /// The skeleton for `ruleset`; its sets' elements do not matter.
    #[must_use]
    pub fn new(ruleset: &Ruleset) -> Self {
        let mut skeleton = Self {
            version: String::new(),
            chains: chains(ruleset),
        };
        let text = skeleton.body(&Contents::new());
        let hash: String = Sha256::digest(text)
            .iter()
            .take(6)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        skeleton.version = format!("{FORMAT}-{hash}");
        skeleton
    }

    /// Format and hash: `1-9f86d081884c`.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Names of the table's chains.
    pub fn chains(&self) -> impl Iterator<Item = &'static str> {
        self.chains.iter().map(|chain| chain.name)
    }

    /// What `nft -f` reads: the table with these elements in place of whatever
    /// table of that name there is, in one transaction. The first line makes
    /// the second one work where there is no table.
    #[must_use]
    pub fn script(&self, contents: &Contents) -> String {
        format!(
            "table {TABLE}\ndelete table {TABLE}\n{}",
            self.body(contents)
        )
    }

    fn body(&self, contents: &Contents) -> String {
        let mut text = format!("table {TABLE} {{\n\tcomment \"tweed {}\"\n", self.version);
        for kind in &SETS {
            for family in FAMILIES {
                let name = kind.of(family);
                let kind_of_key = match family {
                    Family::V4 => "ipv4_addr",
                    Family::V6 => "ipv6_addr",
                };
                text += &format!("\n\tset {name} {{\n\t\ttype {kind_of_key}\n");
                if kind.interval {
                    text += "\t\tflags interval\n";
                }
                let elements = contents.get(&name).into_iter().flatten();
                let elements: Vec<String> = elements.map(element).collect();
                if !elements.is_empty() {
                    text += &format!("\t\telements = {{ {} }}\n", elements.join(", "));
                }
                text += "\t}\n";
            }
        }
        for chain in &self.chains {
            text += &format!("\n\tchain {} {{\n", chain.name);
            if let Some((kind, hook, stage)) = chain.hook {
                let priority = stage.priority();
                text +=
                    &format!("\t\ttype {kind} hook {hook} priority {priority}; policy accept;\n");
            }
            for rule in &chain.rules {
                text += &format!("\t\t{rule}\n");
            }
            text += "\t}\n";
        }
        text + "}\n"
    }
}

fn element(element: &Element) -> String {
    if element.first == element.last {
        element.first.to_string()
    } else {
        format!("{}-{}", element.first, element.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sets::contents;
    use tweed_planner::config::Masquerade;
    use tweed_planner::overlay::desired::VxlanMatch;

    fn vxlan() -> Option<VxlanMatch> {
        Some(VxlanMatch {
            device: "tweed.1".to_owned(),
            vni: 1,
            port: 8472,
        })
    }

    #[test]
    fn overlay() {
        let ruleset = Ruleset {
            masquerade: Some(Masquerade::RandomFully),
            masquerade_nodes: true,
            vxlan: vxlan(),
            local_cidrs: ["10.244.1.0/24", "fd00:0:0:1::/64"]
                .map(|c| c.parse().unwrap())
                .into(),
            cluster_cidrs: ["10.244.1.0/24", "10.244.2.0/24", "fd00::/56"]
                .map(|c| c.parse().unwrap())
                .into(),
            node_addresses: ["192.0.2.1", "192.0.2.2", "2001:db8::1"]
                .map(|a| a.parse().unwrap())
                .into(),
            vxlan_sources: ["192.0.2.2".parse().unwrap()].into(),
        };
        insta::assert_snapshot!(Skeleton::new(&ruleset).script(&contents(&ruleset)));
    }

    #[test]
    fn direct_routes() {
        let ruleset = Ruleset {
            masquerade: Some(Masquerade::Random),
            ..Ruleset::default()
        };
        insta::assert_snapshot!(Skeleton::new(&ruleset).script(&contents(&ruleset)));
    }

    #[test]
    fn overlay_without_masquerading() {
        let ruleset = Ruleset {
            masquerade: Some(Masquerade::Off),
            vxlan: vxlan(),
            ..Ruleset::default()
        };
        insta::assert_snapshot!(Skeleton::new(&ruleset).script(&contents(&ruleset)));
    }

    #[test]
    fn nothing_is_known_yet() {
        let ruleset = Ruleset::default();
        insta::assert_snapshot!(Skeleton::new(&ruleset).script(&contents(&ruleset)));
    }

    #[test]
    fn the_version_follows_the_rules_and_not_the_elements() {
        let plain = Ruleset {
            vxlan: vxlan(),
            ..Ruleset::default()
        };
        let version = |ruleset: &Ruleset| Skeleton::new(ruleset).version().to_owned();
        let fuller = Ruleset {
            node_addresses: ["192.0.2.1".parse().unwrap()].into(),
            ..plain.clone()
        };
        assert_eq!(version(&plain), version(&fuller));
        let other = Ruleset {
            vxlan: vxlan().map(|vxlan| VxlanMatch { vni: 2, ..vxlan }),
            ..plain.clone()
        };
        assert_ne!(version(&plain), version(&other));
    }
}
