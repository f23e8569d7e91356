//! Who carries: over which network, from where to where.

use serde::{Serialize, Serializer};

/// Where the two ends are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// On two nodes.
    Across,
    /// Both on one node.
    Same,
}

impl Place {
    /// Both, in the order of the tables.
    pub const ALL: [Self; 2] = [Self::Across, Self::Same];

    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Across => "from node to node",
            Self::Same => "on one node",
        }
    }
}

/// A network that is built once and may serve several subjects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Two nodes and nothing else.
    Nodes,
    /// What flannel sets up: a VXLAN device, pods on a bridge, its rules.
    HandMade,
    /// Agent and plugin.
    Tweed,
    /// The same with `--backend direct`.
    Direct,
    /// Agents stopped, the table deleted, conntrack kept on by another table.
    NoTable,
    /// Agents stopped, and in place of the table one that only masquerades.
    OnlyMasquerade,
    /// [`Kind::NoTable`] without conntrack.
    NoConntrack,
    /// [`Kind::Tweed`] with many pods on each node and many nodes in the sets.
    Crowded,
    /// [`Kind::NoTable`] with as many.
    CrowdedNoTable,
    /// One node, pods on the reference plugin `bridge`, no rules at all.
    Bridge,
    /// One node, pods by the reference plugin `ptp`, no rules at all.
    Ptp,
}

/// One row of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// The bound: no overlay.
    Nodes,
    /// The rival.
    HandMade,
    /// tweed as it comes.
    Tweed,
    /// The same pods once more: what differs is noise.
    TweedAgain,
    /// Routes instead of an overlay.
    Direct,
    /// How much of the cost is the table's own: what every pod network that
    /// masquerades has.
    OnlyMasquerade,
    /// How much of the cost is the table's, with masquerading.
    NoTable,
    /// How much of the cost is conntrack's.
    NoConntrack,
    /// Many pods and nodes.
    Crowded,
    /// The same without the table.
    CrowdedNoTable,
    /// tweed between pods of one node.
    SameTweed,
    /// The same pods once more.
    SameTweedAgain,
    /// A table that only masquerades.
    SameOnlyMasquerade,
    /// The same without the table, conntrack on.
    SameNoTable,
    /// The same without conntrack.
    SameNoConntrack,
    /// The bridge of the hand-made overlay's node.
    SameHandMade,
    /// `ptp`.
    SamePtp,
    /// A bridge with nothing on it.
    SameBridge,
}

impl Subject {
    /// All, in the order of the tables.
    pub const ALL: [Self; 18] = [
        Self::Nodes,
        Self::HandMade,
        Self::Tweed,
        Self::TweedAgain,
        Self::Direct,
        Self::OnlyMasquerade,
        Self::NoTable,
        Self::NoConntrack,
        Self::Crowded,
        Self::CrowdedNoTable,
        Self::SameTweed,
        Self::SameTweedAgain,
        Self::SameOnlyMasquerade,
        Self::SameNoTable,
        Self::SameNoConntrack,
        Self::SameHandMade,
        Self::SamePtp,
        Self::SameBridge,
    ];

    /// Its name in tables; names are unique within a place.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nodes => "no overlay, node to node",
            Self::HandMade => "hand-made VXLAN",
            Self::Tweed | Self::SameTweed => "tweed",
            Self::TweedAgain | Self::SameTweedAgain => "tweed, again",
            Self::Direct => "tweed, direct routes",
            Self::OnlyMasquerade | Self::SameOnlyMasquerade => "tweed, only masquerading",
            Self::NoTable | Self::SameNoTable => "tweed, no table",
            Self::NoConntrack | Self::SameNoConntrack => "tweed, no table, no conntrack",
            Self::Crowded => "tweed, crowded",
            Self::CrowdedNoTable => "tweed, crowded, no table",
            Self::SameHandMade => "hand-made, its bridge",
            Self::SamePtp => "ptp",
            Self::SameBridge => "bridge, no rules",
        }
    }

    /// The network that it is measured on.
    pub fn kind(self) -> Kind {
        match self {
            Self::Nodes => Kind::Nodes,
            Self::HandMade | Self::SameHandMade => Kind::HandMade,
            Self::Tweed | Self::TweedAgain | Self::SameTweed | Self::SameTweedAgain => Kind::Tweed,
            Self::OnlyMasquerade | Self::SameOnlyMasquerade => Kind::OnlyMasquerade,
            Self::Direct => Kind::Direct,
            Self::NoTable | Self::SameNoTable => Kind::NoTable,
            Self::NoConntrack | Self::SameNoConntrack => Kind::NoConntrack,
            Self::Crowded => Kind::Crowded,
            Self::CrowdedNoTable => Kind::CrowdedNoTable,
            Self::SamePtp => Kind::Ptp,
            Self::SameBridge => Kind::Bridge,
        }
    }

    /// Where its ends are.
    pub fn place(self) -> Place {
        match self {
            Self::Nodes
            | Self::HandMade
            | Self::Tweed
            | Self::TweedAgain
            | Self::Direct
            | Self::OnlyMasquerade
            | Self::NoTable
            | Self::NoConntrack
            | Self::Crowded
            | Self::CrowdedNoTable => Place::Across,
            Self::SameTweed
            | Self::SameTweedAgain
            | Self::SameOnlyMasquerade
            | Self::SameNoTable
            | Self::SameNoConntrack
            | Self::SameHandMade
            | Self::SamePtp
            | Self::SameBridge => Place::Same,
        }
    }

    /// Whom all of its place are compared with.
    pub fn tweed(place: Place) -> Self {
        match place {
            Place::Across => Self::Tweed,
            Place::Same => Self::SameTweed,
        }
    }

    /// The same network as [`Self::tweed`], measured once more.
    pub fn again(place: Place) -> Self {
        match place {
            Place::Across => Self::TweedAgain,
            Place::Same => Self::SameTweedAgain,
        }
    }
}

impl Serialize for Subject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_row_is_found_by_its_name() {
        for place in Place::ALL {
            let of: Vec<&str> = Subject::ALL
                .into_iter()
                .filter(|subject| subject.place() == place)
                .map(Subject::name)
                .collect();
            assert_eq!(of.len(), of.iter().collect::<BTreeSet<_>>().len());
            assert!(of.contains(&Subject::tweed(place).name()));
        }
    }
}
