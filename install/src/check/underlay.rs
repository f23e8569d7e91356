//! The link to the other nodes, and the MTU that it leaves for pods.

use tweed_core::family::Family;
use tweed_core::mtu::{IPV4_MIN, IPV6_MIN, VXLAN_OVER_IPV4, VXLAN_OVER_IPV6};
use tweed_core::problem::{Effect, Problem, ProblemKind};
use tweed_netlink::link::{self, Link};
use tweed_netlink::{Error, Socket, route};

use super::{Outcome, ok, unreadable};

/// What is left if some packets go over VXLAN, or if none do.
pub(super) fn find(has_vxlan: bool) -> Vec<Outcome> {
    match uplinks() {
        Ok(links) if links.is_empty() => {
            let message = "there is no default route, so it is not known which link leads to other \
                           nodes";
            let cure = "make sure that the link with the node's address has an MTU of 1500 or more";
            let problem = Problem::new(ProblemKind::CheckIncomplete, "default route", message);
            vec![Err(problem.with_cure(cure))]
        }
        Ok(links) => links.iter().map(|link| judge(link, has_vxlan)).collect(),
        Err(error) => vec![unreadable(&error)],
    }
}

/// The links of the default routes.
fn uplinks() -> Result<Vec<Link>, Error> {
    let mut socket = Socket::open()?;
    let mut outs: Vec<u32> = route::list(&mut socket, None)?
        .iter()
        .filter(|route| route.destination.prefix() == 0)
        .filter_map(|route| route.out)
        .collect();
    outs.sort_unstable();
    outs.dedup();
    let mut links = Vec::new();
    for out in outs {
        links.extend(link::by_index(&mut socket, out)?);
    }
    Ok(links)
}

fn judge(link: &Link, has_vxlan: bool) -> Outcome {
    let Link { name, mtu, .. } = link;
    let (over_ipv4, over_ipv6, way) = if has_vxlan {
        (VXLAN_OVER_IPV4, VXLAN_OVER_IPV6, "over VXLAN")
    } else {
        (0, 0, "over direct routes")
    };
    let left = mtu.saturating_sub(over_ipv4);
    let too_small = |message: String| {
        Problem::new(ProblemKind::MtuTooSmall, name, message).with_cure(format!(
            "run `ip link set {name} mtu 1500`, if everything between the nodes carries as much, \
             and set it where the link is configured"
        ))
    };
    if left < IPV4_MIN {
        let message = format!("{name} has an MTU of {mtu}: too little for pods {way}");
        return Err(too_small(message));
    }
    let left_over_ipv6 = link.mtu_of(Family::V6).saturating_sub(over_ipv6);
    if left < IPV6_MIN {
        let message =
            format!("{name} has an MTU of {mtu}: pods get {left} {way}, and cannot have IPv6");
        return Err(too_small(message).with_effect(Effect::Warning));
    }
    ok(format!(
        "{name} has {mtu}: pods get {left} {way} on IPv4, {left_over_ipv6} on IPv6"
    ))
}

#[cfg(test)]
mod tests {
    use tweed_netlink::link::Ipv6Settings;

    use super::super::Level;
    use super::*;

    #[test]
    fn what_is_left_to_pods_decides() {
        for (mtu, level) in [
            (9001, Level::Ok),
            (1500, Level::Ok),
            (1330, Level::Ok),
            (1329, Level::Warning),
            (626, Level::Warning),
            (625, Level::Error),
            (0, Level::Error),
        ] {
            let link = Link {
                name: "eth0".to_owned(),
                mtu,
                ..Link::default()
            };
            assert_eq!(Level::of(&judge(&link, true)), level, "{mtu}");
        }
        let link = Link {
            name: "eth0".to_owned(),
            mtu: 1280,
            ..Link::default()
        };
        assert_eq!(Level::of(&judge(&link, false)), Level::Ok);
    }

    #[test]
    fn over_ipv6_it_is_what_a_router_advertises() {
        let link = Link {
            name: "eth0".to_owned(),
            mtu: 1500,
            ipv6: Some(Ipv6Settings {
                mtu: 1492,
                ..Ipv6Settings::default()
            }),
            ..Link::default()
        };
        let said = judge(&link, true).unwrap();
        assert!(
            said.contains("pods get 1450 over VXLAN on IPv4, 1422 on IPv6"),
            "{said}"
        );
    }
}
