//! Links that come and go: the mirror still is what the kernel holds, and the overlay is
//! compared again only for what concerns it.

use std::fs;

use tweed_agent::reconcile::kernel::Kernel;
use tweed_agent::reconcile::kernel::mirror::{Mirror, MirrorPart};
use tweed_planner::overlay::vtep;

use crate::node::{Node, batch, eventually, ip};

/// Number of steps, each of one to three changes, and number of links that they change.
const STEPS: u32 = 200;
const LINKS: usize = 5;

/// Random numbers, the same in each run (splitmix64).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % sides as u64) as usize
    }
}

fn open() -> Kernel {
    Kernel::open(vtep::mac("n1")).unwrap()
}

/// What a kernel that was just opened reads: all of it, by whole dumps.
fn read_anew() -> Mirror {
    let mut kernel = open();
    kernel.observe().unwrap();
    comparable(kernel.mirror())
}

/// Several routes with a key are in no order.
fn comparable(mirror: &Mirror) -> Mirror {
    let mut sorted = mirror.clone();
    for routes in sorted.routes.values_mut() {
        routes.sort_by_key(ToString::to_string);
    }
    sorted
}

fn observe(kernel: &mut Kernel) {
    while kernel.read_notifications().is_err() || kernel.is_stale() {
        kernel.observe().unwrap();
    }
}

/// A change of one of the links, as a line for `ip -batch`; it may fail.
fn change(dice: &mut Dice) -> String {
    let number = dice.roll(LINKS);
    // Of others, of a pod, and one that is either, by its group.
    let name = match number {
        0 | 1 => format!("veth{number}"),
        _ => format!("tw00000000000{number}"),
    };
    let index = 40 + number;
    let group = [116, 0][dice.roll(2)];
    let (other, source) = (dice.roll(LINKS), dice.roll(LINKS));
    let updown = ["up", "down"][dice.roll(2)];
    match dice.roll(20) {
        0..=2 => format!(
            "link add {name} index {index} group {group} type veth peer name p{number}\nlink set p{number} up\nlink set {name} up"
        ),
        3 | 4 => format!("link delete {name}"),
        5 => format!("link set {name} {updown}"),
        6 => format!("link set {name} group {group}"),
        7 => format!("link set {name} mtu {}", 1300 + dice.roll(2) * 100),
        8 => format!("address add 198.51.100.{number}/32 dev {name}"),
        9 => format!("address delete 198.51.100.{number}/32 dev {name}"),
        10 | 11 => format!("route add 10.0.1.{other}/32 dev {name} proto 116"),
        12 => format!("route replace 10.0.1.{other}/32 dev {name} proto 116"),
        13 => format!("route append 10.0.2.0/24 dev {name} proto 116"),
        14 => format!("route delete 10.0.1.{other}/32 dev {name} proto 116"),
        15..=17 => {
            format!("route replace 10.0.1.{other}/32 dev {name} proto 116 src 198.51.100.{source}")
        }
        18 => {
            format!("neighbour replace 10.0.1.{other} lladdr 02:00:00:00:00:0{number} dev {name}")
        }
        _ => format!("-6 route replace fd00::{other} dev {name} proto 116"),
    }
}

#[test]
fn the_mirror_is_what_the_kernel_holds_whatever_happens_to_links() {
    let _node = Node::new();
    ip("link add tweed.1 type vxlan id 1 dstport 8472 local 192.0.2.1 nolearning");
    ip("link set tweed.1 up");
    ip("route add 10.0.2.0/24 via 10.0.2.0 dev tweed.1 onlink proto 116");
    ip("route add 10.0.3.0/24 via 192.0.2.3 proto 116");
    let mut kernel = open();
    let mut dice = Dice(7);
    for step in 0..STEPS {
        let lines: Vec<String> = (0..=dice.roll(3)).map(|_| change(&mut dice)).collect();
        let changes = lines.join("\n");
        batch(&changes);
        if changes.contains(" group ") {
            // The kernel says nothing of another group of a link that is down: each poll
            // reads the links.
            kernel.invalidate([MirrorPart::Links]);
        }
        // An IPv6 address is tentative for a moment.
        eventually(|| {
            observe(&mut kernel);
            let (is, should) = (comparable(kernel.mirror()), read_anew());
            if is == should {
                Ok(())
            } else {
                Err(format!(
                    "after step {step}:\n{changes}\n{}",
                    difference(&is, &should)
                ))
            }
        });
    }
}

/// The lines in which the two differ, as far as they have the same number.
fn difference(is: &Mirror, should: &Mirror) -> String {
    let (is, should) = (format!("{is:#?}"), format!("{should:#?}"));
    let lines = is.lines().zip(should.lines());
    let differ = lines.filter(|(is, should)| is != should).take(10);
    differ
        .map(|(is, should)| format!("{is} and not {should}\n"))
        .collect()
}

/// What `ip` does, before anything is read again, and whether the FDB of all Nodes has to be
/// read because of it.
fn costs_all(kernel: &mut Kernel, lines: &[&str]) -> bool {
    observe(kernel);
    for line in lines {
        ip(line);
        kernel.read_notifications().unwrap();
        if !kernel.is_known(MirrorPart::Fdb) {
            return true;
        }
        observe(kernel);
    }
    false
}

#[test]
fn a_link_that_goes_has_nothing_read_of_other_nodes_unless_it_has_an_address() {
    let _node = Node::new();
    fs::write("/proc/sys/net/ipv6/conf/default/accept_dad", "0").unwrap();
    let mut kernel = open();
    let come_and_go = |name: &str, more: &str| {
        [
            format!("link add {name} type veth peer name p0 {more}"),
            "link set p0 up".to_owned(),
            format!("link set {name} up"),
            format!("link set {name} down"),
            format!("link delete {name}"),
        ]
    };
    for (name, more) in [("veth0", ""), ("tw000000000001", "group 116")] {
        let lines = come_and_go(name, more);
        let version = kernel.version();
        assert!(
            !costs_all(&mut kernel, &lines.each_ref().map(String::as_str)),
            "{name}"
        );
        assert_eq!(kernel.version(), version, "{name}");
    }
    let texts = come_and_go("veth0", "");
    let mut lines = texts.each_ref().map(String::as_str).to_vec();
    lines.insert(3, "address add 198.51.100.1/24 dev veth0");
    assert!(costs_all(&mut kernel, &lines));
}
