//! Tells the other machines on a link which MAC has an own address, so that they need
//! not find out by themselves: a machine that replaced another at the same address, or
//! an address that came from another machine, would get no packets of theirs for as
//! long as they believe the old MAC, up to a minute.
//!
//! How data goes through: the plan says which own addresses other nodes send to, the
//! mirror which of them are usable and on a link with MACs that is up; [`Announcer::due`]
//! decides, purely, which to announce now; [`packet`] makes the packets.
//!
//! An address is announced when the node first converges in a boot, and when it is new,
//! became usable, or its link came up or has another MAC; three times, a poll apart,
//! because such a packet may be lost. One that cannot be sent is tried again a poll later.
//! An address that is not usable may be that of another machine (duplicate address
//! detection has not ended, or has found one). After a restart of the agent nothing is:
//! what there was then, an agent has announced. (The kernel announces by itself only where the host's `arp_notify` and
//! `ndisc_notify` say so, and only when a link comes up.)

mod packet;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::ptr;

use nix::errno::Errno;
use nix::libc::{AF_PACKET, ETH_P_ARP, ETH_P_IPV6, sockaddr, sockaddr_ll, socklen_t};
use nix::sys::socket::{
    AddressFamily, LinkAddr, MsgFlags, SockFlag, SockType, SockaddrLike, sendto, socket,
};
use tweed_core::agent_state::READY_FILE;
use tweed_core::mac::Mac;
use tweed_planner::overlay::host::AddressState;

use super::kernel::mirror::Mirror;

/// How often an address is announced: `MAX_NEIGHBOR_ADVERTISEMENT` of RFC 4861.
const TIMES: u32 = 3;

/// That an address is at a MAC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Announcement {
    address: IpAddr,
    /// Index of the link.
    link: u32,
    mac: Mac,
    /// Whether the link forwards IPv6.
    is_router: bool,
}

/// Announces own addresses.
#[derive(Debug)]
pub struct Announcer {
    /// Whether what is there at first was announced by an agent before this one.
    resumed: bool,
    /// How often each has still to be announced.
    left: BTreeMap<Announcement, u32>,
    /// Whether the last announcement could not be sent: this is logged once.
    failed: bool,
    /// What sends, once anything was sent. To close it, the kernel waits for all processors:
    /// 10 ms and more, for which the route of a new Node would have to wait.
    socket: Option<OwnedFd>,
}

impl Announcer {
    /// The announcer of an agent with this run folder, from which a `ready` file of an
    /// earlier boot was removed: one that is there says that an agent has converged in
    /// this boot.
    pub fn new(run_dir: &Path) -> Self {
        Self {
            resumed: run_dir.join(READY_FILE).exists(),
            left: BTreeMap::new(),
            failed: false,
            socket: None,
        }
    }

    /// Announces those of `own_addresses`, each with the index of its link, that have
    /// to be. To be called once the node's own part is written; `again` says that a poll
    /// has passed since the last time.
    pub fn announce(
        &mut self,
        mirror: &Mirror,
        own_addresses: &BTreeMap<IpAddr, u32>,
        again: bool,
    ) {
        for announcement in self.due(&present(mirror, own_addresses), again) {
            let Announcement { address, mac, .. } = announcement;
            let link = mirror.link_name(announcement.link);
            let sent = self.send(&announcement);
            let was_failing = self.sent(&announcement, sent);
            match sent {
                Ok(()) => tracing::debug!(%address, %mac, link, "own address announced"),
                Err(_) if was_failing => {}
                Err(error) => {
                    let then = if is_forbidden(error) {
                        " (that needs CAP_NET_RAW)"
                    } else {
                        ", and is tried again"
                    };
                    tracing::warn!(
                        %address,
                        link,
                        %error,
                        "the own address cannot be announced{then}: if another machine had it, \
                         others find this one after up to a minute"
                    );
                }
            }
        }
    }

    fn send(&mut self, announcement: &Announcement) -> nix::Result<()> {
        let Announcement {
            address,
            link,
            mac,
            is_router,
        } = *announcement;
        let (protocol, destination, packet) = match address {
            IpAddr::V4(ip) => (ETH_P_ARP, packet::BROADCAST, packet::arp(ip, mac)),
            IpAddr::V6(ip) => {
                let packet = packet::advertisement(ip, mac, is_router);
                (ETH_P_IPV6, packet::ALL_NODES_MAC, packet)
            }
        };
        let place = place(link, protocol, destination)?;
        let socket = match self.socket.take() {
            Some(socket) => socket,
            None => {
                // Of no protocol: it receives nothing.
                let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
                socket(AddressFamily::Packet, SockType::Datagram, flags, None)?
            }
        };
        let socket = self.socket.insert(socket).as_raw_fd();
        sendto(socket, &packet, &place, MsgFlags::empty()).map(drop)
    }

    /// Enters how an announcement that was due went, and says whether the one before
    /// had failed. What is forbidden will not be allowed later, and counts as made.
    fn sent(&mut self, announcement: &Announcement, sent: nix::Result<()>) -> bool {
        let is_over = sent.is_ok() || sent.is_err_and(is_forbidden);
        if let Some(left) = self.left.get_mut(announcement)
            && is_over
        {
            *left = left.saturating_sub(1);
        }
        std::mem::replace(&mut self.failed, sent.is_err())
    }

    /// Those of `present` to announce now: what is new at once, the rest a poll later.
    fn due(&mut self, present: &BTreeSet<Announcement>, again: bool) -> Vec<Announcement> {
        let is_resumed = std::mem::take(&mut self.resumed);
        let times = if is_resumed { 0 } else { TIMES };
        self.left.retain(|one, _| present.contains(one));
        let mut due = Vec::new();
        for one in present {
            let is_new = !self.left.contains_key(one);
            let left = *self.left.entry(*one).or_insert(times);
            if left > 0 && (again || is_new) {
                due.push(*one);
            }
        }
        due
    }
}

fn is_forbidden(error: Errno) -> bool {
    matches!(error, Errno::EPERM | Errno::EACCES)
}

/// The own addresses that can be announced: usable ones, on links where machines have
/// MACs.
fn present(mirror: &Mirror, own_addresses: &BTreeMap<IpAddr, u32>) -> BTreeSet<Announcement> {
    let announcement = |(address, index): (&IpAddr, &u32)| {
        let link = mirror.links.get(index)?;
        let mut states = (mirror.addresses.iter())
            .filter(|(key, _)| key.device == *index && key.network.ip() == *address);
        states.find(|(_, state)| **state != AddressState::Tentative)?;
        let speaks = link.up && link.carrier && !link.loopback && !link.noarp;
        Some(Announcement {
            address: *address,
            link: *index,
            mac: link.mac.filter(|_| speaks)?,
            is_router: link.ipv6.is_some_and(|ipv6| ipv6.forwarding != 0),
        })
    };
    own_addresses.iter().filter_map(announcement).collect()
}

/// The address of `mac` on a link for packets of this protocol (packet(7)).
fn place(link: u32, protocol: i32, mac: Mac) -> nix::Result<LinkAddr> {
    let mut sll_addr = [0; 8];
    sll_addr[..6].copy_from_slice(&mac.0);
    let place = sockaddr_ll {
        sll_family: u16::try_from(AF_PACKET).map_err(|_| Errno::EINVAL)?,
        sll_protocol: u16::try_from(protocol).map_err(|_| Errno::EINVAL)?.to_be(),
        sll_ifindex: i32::try_from(link).map_err(|_| Errno::EINVAL)?,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 6,
        sll_addr,
    };
    let length = socklen_t::try_from(size_of::<sockaddr_ll>()).map_err(|_| Errno::EINVAL)?;
    #[expect(unsafe_code, reason = "nix makes such an address in no other way")]
    // SAFETY: the pointer is to a whole `sockaddr_ll`, whose family and length say so.
    let place =
        unsafe { LinkAddr::from_raw(ptr::from_ref(&place).cast::<sockaddr>(), Some(length)) };
    place.ok_or(Errno::EINVAL)
}

#[cfg(test)]
mod tests {
    use tweed_netlink::link::{Ipv6Settings, Link};

    use super::*;
    use crate::reconcile::kernel::key::AddressKey;

    fn announcer(resumed: bool) -> Announcer {
        Announcer {
            resumed,
            left: BTreeMap::new(),
            failed: false,
            socket: None,
        }
    }

    fn at(last: u8, mac: u8) -> Announcement {
        Announcement {
            address: [192, 0, 2, last].into(),
            link: 2,
            mac: Mac([2, 0, 0, 0, 0, mac]),
            is_router: false,
        }
    }

    /// What is due; all of it can be sent.
    fn sends(announcer: &mut Announcer, present: &[Announcement], again: bool) -> Vec<u8> {
        announces(announcer, present, again, Ok(()))
    }

    /// What is due, as the last byte of each address; sending each of them ends so.
    fn announces(
        announcer: &mut Announcer,
        present: &[Announcement],
        again: bool,
        sent: nix::Result<()>,
    ) -> Vec<u8> {
        let due = announcer.due(&present.iter().copied().collect(), again);
        let each = due.iter().map(|one| {
            announcer.sent(one, sent);
            match one.address {
                IpAddr::V4(ip) => ip.octets()[3],
                IpAddr::V6(ip) => ip.octets()[15],
            }
        });
        each.collect()
    }

    #[test]
    fn what_is_new_is_announced_at_once_and_twice_more() {
        let mut announcer = announcer(false);
        let first = [at(1, 1)];
        assert_eq!(sends(&mut announcer, &first, true), [1]);
        assert_eq!(
            sends(&mut announcer, &first, false),
            [0; 0],
            "only by the clock"
        );
        let both = [at(1, 1), at(2, 1)];
        assert_eq!(sends(&mut announcer, &both, false), [2]);
        assert_eq!(sends(&mut announcer, &both, true), [1, 2]);
        assert_eq!(sends(&mut announcer, &both, true), [1, 2]);
        assert_eq!(sends(&mut announcer, &both, true), [0; 0]);
        assert_eq!(sends(&mut announcer, &[at(1, 9)], false), [1]);
        // Another machine may have had it meanwhile.
        assert_eq!(sends(&mut announcer, &[], true), [0; 0]);
        assert_eq!(sends(&mut announcer, &[at(1, 9)], false), [1]);
    }

    /// A link that just came up may take nothing yet.
    #[test]
    fn what_cannot_be_sent_is_tried_again_a_poll_later_and_still_made_three_times() {
        let mut announcer = announcer(false);
        let one = [at(1, 1)];
        for error in [Errno::ENETDOWN, Errno::ENOBUFS, Errno::EAGAIN] {
            assert_eq!(announces(&mut announcer, &one, true, Err(error)), [1]);
            assert_eq!(announces(&mut announcer, &one, false, Err(error)), [0; 0]);
        }
        assert!(announcer.failed);
        for _ in 0..3 {
            assert_eq!(sends(&mut announcer, &one, true), [1]);
            assert!(!announcer.failed, "the next failure is logged again");
        }
        assert_eq!(sends(&mut announcer, &one, true), [0; 0]);
    }

    #[test]
    fn what_is_forbidden_is_not_tried_for_ever() {
        let mut announcer = announcer(false);
        let one = [at(1, 1)];
        for _ in 0..3 {
            let forbidden = Err(Errno::EPERM);
            assert_eq!(announces(&mut announcer, &one, true, forbidden), [1]);
        }
        assert_eq!(sends(&mut announcer, &one, true), [0; 0]);
    }

    #[test]
    fn a_restart_announces_only_what_is_new_since() {
        let mut announcer = announcer(true);
        assert_eq!(sends(&mut announcer, &[at(1, 1)], true), [0; 0]);
        assert_eq!(sends(&mut announcer, &[at(1, 1), at(2, 1)], true), [2]);
    }

    #[test]
    fn a_machine_that_forwards_announces_itself_as_a_router() {
        for forwarding in [0, 1] {
            let link = Link {
                index: 2,
                up: true,
                carrier: true,
                mac: Some(Mac([2, 0, 0, 0, 0, 1])),
                ipv6: Some(Ipv6Settings {
                    disable_ipv6: 0,
                    forwarding,
                    accept_ra: 0,
                    autoconf: 0,
                    accept_redirects: 0,
                    addr_gen_mode: 0,
                    mtu: 1500,
                }),
                ..Link::default()
            };
            let network = "fd00::1/64".parse().unwrap();
            let key = AddressKey { device: 2, network };
            let mut mirror = Mirror::default();
            mirror.set_links([(2, link)].into());
            mirror.addresses.insert(key, AddressState::Usable);
            let announced = present(&mirror, &[(network.ip(), 2)].into());
            let is_router: Vec<bool> = announced.iter().map(|one| one.is_router).collect();
            assert_eq!(is_router, [forwarding == 1]);
        }
    }

    #[test]
    fn only_usable_addresses_on_links_with_macs_that_are_up_are_announced() {
        let good = Link {
            index: 2,
            up: true,
            carrier: true,
            mac: Some(Mac([2, 0, 0, 0, 0, 1])),
            ..Link::default()
        };
        let own = [([192, 0, 2, 1].into(), 2)].into();
        let found_in = |link: Link, device, state| {
            let mut mirror = Mirror::default();
            mirror.set_links([(2, link)].into());
            let network = "192.0.2.1/24".parse().unwrap();
            let key = AddressKey { device, network };
            mirror.addresses.insert(key, state);
            present(&mirror, &own).len()
        };
        let found = |link| found_in(link, 2, AddressState::Usable);
        assert_eq!(found(good.clone()), 1);
        assert_eq!(found_in(good.clone(), 2, AddressState::Temporary), 1);
        assert_eq!(
            found_in(good.clone(), 2, AddressState::Tentative),
            0,
            "another machine may have it"
        );
        assert_eq!(found_in(good.clone(), 3, AddressState::Usable), 0);
        let bad: [fn(&mut Link); 5] = [
            |link| link.up = false,
            |link| link.carrier = false,
            |link| link.loopback = true,
            |link| link.noarp = true,
            |link| link.mac = None,
        ];
        for change in bad {
            let mut link = good.clone();
            change(&mut link);
            assert_eq!(found(link), 0);
        }
        assert!(present(&Mirror::default(), &own).is_empty());
    }
}
