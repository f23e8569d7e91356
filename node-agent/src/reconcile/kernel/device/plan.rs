//! What to do about the VXLAN device: pure.

use tweed_netlink::link::{Link, Vxlan};

use super::conflict::{name_taken, no_carrier};
use crate::{reconcile::kernel::change::Change, reconcile::kernel::mirror::Mirror};
use tweed_core::problem::Problem;
use tweed_netlink::owned;
use tweed_planner::overlay::desired::VxlanDevice;

/// How often the device is given its carrier back: whoever goes on taking it away is named
/// and left alone.
const MAX_CARRIER_GIVEN: u8 = 3;

/// What there is to do about VXLAN devices.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DevicePlan {
    /// The device with the right name that has to be deleted first, and why.
    pub remove: Option<(u32, String)>,
    /// Whether the device has to be created.
    pub create: bool,
    /// Index of the device that can stay.
    pub index: Option<u32>,
    /// Its present name, if somebody renamed it.
    pub renamed: Option<String>,
    /// The other changes that it needs.
    pub changes: Vec<Change>,
    /// Devices of tweed with other names, which earlier VNIs left: to be removed
    /// last, when nothing uses them any more.
    pub stale: Vec<u32>,
    /// Why there can be no device.
    pub problem: Option<Problem>,
}

impl DevicePlan {
    /// Whether nothing has to be done.
    pub fn is_done(&self) -> bool {
        *self
            == Self {
                index: self.index,
                ..Self::default()
            }
    }
}

/// Decides what to do so that `want` is there and no other device of tweed.
pub fn plan(mirror: &Mirror, want: Option<&VxlanDevice>) -> DevicePlan {
    let mut plan = DevicePlan::default();
    let mut others: Vec<&Link> = (mirror.links.values())
        .filter(|link| owned::is_device(link) && want.is_none_or(|want| want.name != link.name))
        .collect();
    if let Some(want) = want {
        plan.find(mirror, want);
        others.retain(|link| Some(link.index) != plan.index);
    }
    plan.stale = others.iter().map(|link| link.index).collect();
    plan
}

impl DevicePlan {
    /// Finds the device that can be `want`, and what is in its way.
    fn find(&mut self, mirror: &Mirror, want: &VxlanDevice) {
        if let Some(have) = mirror.link(&want.name) {
            let Some(options) = &have.vxlan else {
                self.problem = Some(name_taken(have));
                return;
            };
            let Some(why) = difference(options, &options_of(want)) else {
                self.index = Some(have.index);
                self.changes = in_place(mirror, have, want);
                return;
            };
            self.remove = Some((have.index, why));
        }
        match mirror
            .links
            .values()
            .find(|link| is_renamed(mirror, link, want))
        {
            Some(have) => {
                self.index = Some(have.index);
                self.renamed = Some(have.name.clone());
                self.changes = in_place(mirror, have, want);
            }
            None => self.create = true,
        }
    }
}

/// Whether `link` is `want` and was renamed.
fn is_renamed(mirror: &Mirror, link: &Link, want: &VxlanDevice) -> bool {
    link.name != want.name
        && mirror.is_device(link)
        && link.vxlan.as_ref() == Some(&options_of(want))
}

/// The changes that make `have`, which has the right name, like `want`. The groups of
/// pods' links are not for the device: the table's rules would take what arrives from
/// other nodes as sent by a pod. Any other group is left to whoever set it.
pub fn in_place(mirror: &Mirror, have: &Link, want: &VxlanDevice) -> Vec<Change> {
    let index = have.index;
    let lacks_carrier = have.proto_down && !gives_up(mirror);
    let carrier = lacks_carrier.then_some(Change::GiveCarrier { index });
    let mac = (have.mac != Some(want.mac)).then_some(want.mac);
    let mtu = (have.mtu != want.mtu).then_some(want.mtu);
    let release = have.master.map(|_| Change::ReleaseLink { index });
    let leave = owned::is_in_group(have).then_some(Change::SetLinkGroup { index, group: 0 });
    let differs = !have.up || mac.is_some() || mtu.is_some();
    let set = differs.then_some(Change::SetLink {
        index,
        up: true,
        mtu,
        mac,
    });
    { release.into_iter() }
        .chain(leave)
        .chain(carrier)
        .chain(set)
        .collect()
}

/// Whether the device has been given its carrier back often enough.
pub fn gives_up(mirror: &Mirror) -> bool {
    mirror.carrier_given >= MAX_CARRIER_GIVEN
}

/// That the device stays without a carrier, if it does.
pub fn carrier_problem(mirror: &Mirror, want: &VxlanDevice) -> Option<Problem> {
    let device = mirror.link(&want.name)?;
    (device.proto_down && gives_up(mirror)).then(|| no_carrier(device))
}

/// The options with which `want` is created.
pub fn options_of(want: &VxlanDevice) -> Vxlan {
    Vxlan::nolearning(want.vni, want.port, want.local)
}

/// Why a device with the options `have` has to be made again; none if it can
/// stay.
fn difference(have: &Vxlan, want: &Vxlan) -> Option<String> {
    if have == want {
        return None;
    }
    let differs = |what: &str, have: &dyn std::fmt::Debug, want: &dyn std::fmt::Debug| {
        Some(format!("its {what} is {have:?} and not {want:?}"))
    };
    if have.vni != want.vni {
        differs("VNI", &have.vni, &want.vni)
    } else if have.port != want.port {
        differs("UDP port", &have.port, &want.port)
    } else if have.local != want.local {
        differs("own address", &have.local, &want.local)
    } else if have.learning {
        Some("it learns MACs from packets".to_owned())
    } else {
        Some(format!("it has options that tweed does not set: {have:?}"))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;

    use tweed_core::mac::Mac;
    use tweed_core::problem::ProblemKind;

    use super::*;

    pub(in super::super) fn want() -> VxlanDevice {
        VxlanDevice {
            name: "tweed.1".to_owned(),
            vni: 1,
            port: 8472,
            local: "192.0.2.1".parse().unwrap(),
            mac: Mac([2, 0, 0, 0, 0, 1]),
            mtu: 1450,
        }
    }

    fn mirror(links: impl Into<BTreeMap<u32, Link>>) -> Mirror {
        Mirror {
            vtep_mac: Some(want().mac),
            links: links.into(),
            ..Mirror::default()
        }
    }

    pub(in super::super) fn device(index: u32, name: &str, vxlan: Option<Vxlan>) -> (u32, Link) {
        let link = Link {
            index,
            name: name.to_owned(),
            up: true,
            mtu: 1450,
            mac: Some(Mac([2, 0, 0, 0, 0, 1])),
            kind: Some(if vxlan.is_some() { "vxlan" } else { "dummy" }.to_owned()),
            vxlan,
            ..Link::default()
        };
        (index, link)
    }

    fn good() -> (u32, Link) {
        device(7, "tweed.1", Some(options_of(&want())))
    }

    #[test]
    fn a_device_as_it_should_be_is_left_alone() {
        let plan = plan(&mirror([good()]), Some(&want()));
        assert_eq!(plan.index, Some(7));
        assert!(plan.is_done());
    }

    #[test]
    fn mac_mtu_and_up_are_changed_in_place() {
        let (index, mut link) = good();
        link.up = false;
        link.mtu = 1400;
        link.mac = Some(Mac([2, 0, 0, 0, 0, 9]));
        let plan = plan(&mirror([(index, link)]), Some(&want()));
        let change = Change::SetLink {
            index: 7,
            up: true,
            mtu: Some(1450),
            mac: Some(want().mac),
        };
        assert!(!plan.is_done());
        assert_eq!(plan.changes, [change]);
        assert!(!plan.create && plan.remove.is_none());
    }

    #[test]
    fn a_port_of_a_bridge_is_taken_out_of_it() {
        let (index, mut link) = good();
        link.master = Some(9);
        let plan = plan(&mirror([(index, link)]), Some(&want()));
        assert_eq!(plan.changes, [Change::ReleaseLink { index }]);
        assert!(!plan.create && plan.remove.is_none());
    }

    #[test]
    fn a_device_in_a_group_of_pods_links_is_taken_out_of_it() {
        for (group, is_left) in [(116, false), (117, false), (0, true), (7, true)] {
            let (index, mut link) = good();
            link.group = group;
            let plan = plan(&mirror([(index, link)]), Some(&want()));
            let change = Change::SetLinkGroup { index, group: 0 };
            assert_eq!(plan.changes == [change], !is_left, "{group}");
            assert_eq!(plan.is_done(), is_left, "{group}");
        }
    }

    #[test]
    fn a_device_of_another_name_gets_its_own_back() {
        for name in ["mine", "tweed.5"] {
            let mirror = mirror([device(7, name, Some(options_of(&want())))]);
            let plan = plan(&mirror, Some(&want()));
            assert_eq!((plan.index, plan.renamed.as_deref()), (Some(7), Some(name)));
            assert!(!plan.is_done() && !plan.create);
            assert_eq!(plan.stale, [0; 0]);
        }
    }

    #[test]
    fn a_device_of_another_name_makes_room_for_no_other() {
        let other = Vxlan::nolearning(9, 8472, want().local);
        let renamed = device(8, "mine", Some(options_of(&want())));
        let mirror = mirror([device(7, "tweed.1", Some(other)), renamed]);
        let plan = plan(&mirror, Some(&want()));
        assert_eq!(plan.remove.map(|(index, _)| index), Some(7));
        assert_eq!(plan.index, Some(8));
        assert!(!plan.create);
    }

    #[test]
    fn a_foreign_device_gets_no_name() {
        let options = options_of(&want());
        let (_, mut other_mac) = device(4, "flannel.1", Some(options.clone()));
        other_mac.mac = Some(Mac([2, 0, 0, 0, 0, 9]));
        let learns = Vxlan {
            learning: true,
            ..options
        };
        let (_, other_options) = device(4, "flannel.1", Some(learns));
        for foreign in [other_mac, other_options] {
            let plan = plan(&mirror([(4, foreign)]), Some(&want()));
            assert!(plan.create && plan.renamed.is_none() && plan.remove.is_none());
        }
    }

    #[test]
    fn another_option_makes_it_another_device() {
        let changes: [fn(&mut Vxlan); 5] = [
            |vxlan| vxlan.vni = 2,
            |vxlan| vxlan.port = 4789,
            |vxlan| vxlan.local = None,
            |vxlan| vxlan.learning = true,
            |vxlan| vxlan.more = true,
        ];
        for change in changes {
            let mut options = options_of(&want());
            change(&mut options);
            let mirror = mirror([device(7, "tweed.1", Some(options))]);
            let plan = plan(&mirror, Some(&want()));
            assert!(plan.create);
            assert_eq!(plan.remove.map(|(index, _)| index), Some(7));
        }
    }

    #[test]
    fn a_device_of_an_earlier_vni_goes_last_and_foreign_ones_stay() {
        let old = device(3, "tweed.9", Some(options_of(&want())));
        let foreign = device(4, "flannel.1", Some(options_of(&want())));
        let not_vxlan = device(5, "tweed.8", None);
        let mirror = mirror([old, foreign, not_vxlan, good()]);
        assert_eq!(plan(&mirror, Some(&want())).stale, [3]);
        assert_eq!(plan(&mirror, None).stale, [3, 7]);
    }

    #[test]
    fn a_device_of_our_name_that_is_no_vxlan_is_named_and_left_alone() {
        let plan = plan(&mirror([device(7, "tweed.1", None)]), Some(&want()));
        assert_eq!(plan.problem.unwrap().kind, ProblemKind::VxlanNameTaken);
        assert!(!plan.create && plan.remove.is_none() && plan.stale.is_empty());
    }
}
