//! Damage done faster than it can be mended, in an order that differs from
//! round to round: in the end all is whole.

use crate::node::{Node, batch, eventually, picture};

const ROUNDS: u32 = 12;
const BLOWS: u32 = 40;
const NODES: u32 = 60;

/// A sequence that is the same in every run (Knuth's MMIX generator).
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        u32::try_from(self.0 >> 33).unwrap() % limit
    }
}

fn blow(dice: &mut Dice) -> String {
    let n = 2 + dice.below(NODES - 1);
    match dice.below(10) {
        0 => format!("route delete 10.0.{n}.0/24"),
        1 => format!("route change 10.0.{n}.0/24 via 10.0.3.0 dev tweed.1 onlink proto 116"),
        2 => format!("neighbour delete 10.0.{n}.0 dev tweed.1"),
        3 => format!(
            "neighbour replace 10.0.{n}.0 lladdr 02:00:00:00:00:01 dev tweed.1 nud permanent"
        ),
        4 => "link set tweed.1 down\nlink set tweed.1 up".to_owned(),
        5 => "address delete 10.0.1.0/32 dev tweed.1".to_owned(),
        6 => format!("address add 10.9.9.{n}/32 dev tweed.1"),
        7 => format!("link set tweed.1 mtu {}", 1000 + n),
        8 => format!("link set tweed.1 address 02:00:00:00:01:{n:02x}"),
        _ if dice.below(4) == 0 => "link delete tweed.1".to_owned(),
        _ => "link set eth0 down\nlink set eth0 up".to_owned(),
    }
}

#[test]
fn a_storm_of_damage_is_survived() {
    let node = Node::new();
    node.list(1..=NODES);
    let agent = node.start(&[]);
    agent.ready();
    let whole = picture();
    let mut dice = Dice(116);
    for round in 0..ROUNDS {
        let lines: Vec<String> = (0..BLOWS).map(|_| blow(&mut dice)).collect();
        let blows = lines.join("\n");
        batch(&blows);
        eventually(|| match std::panic::catch_unwind(picture) {
            Ok(now) if now == whole => Ok(()),
            Ok(now) => Err(format!("round {round}:\n{blows}\nleft\n{now}")),
            Err(_) => Err(format!("round {round}: no device after\n{blows}")),
        });
    }
    agent.ready();
}
