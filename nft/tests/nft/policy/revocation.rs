//! A flow that is no longer allowed is cut, and no other.

use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{self, TryRecvError};
use std::sync::{Arc, Mutex};
use std::thread;

use caps::{CapSet, Capability::CAP_NET_ADMIN};
use tweed_core::family::Family;
use tweed_nft::policy::{InForce, PolicyTable};
use tweed_nft::{Connection, Table as _};
use tweed_planner::policy::desired::Desired;
use tweed_planner::policy::verdicts::Direction::In;

use super::delta::delta;
use super::lab::{FAMILIES, Lab, PacketOutcome::*, arrives, ruleset, udp_pair};
use super::plan::{Plan, TCP, UDP, identity, profile};
use crate::node::NOTHING;

/// `a` may reach `b` by these ports of TCP, and port 53 of UDP.
pub fn allowing(lab: &Lab, ports: &[u16]) -> Desired {
    let mut plan = Plan::new(&[lab.a.both(), lab.b.both()].concat())
        .policed(In, &lab.b.both())
        .identity(&lab.a.both(), identity(0))
        .pair(In, &lab.b.both(), identity(0), profile(0))
        .exact(profile(0), UDP, 53);
    for port in ports {
        plan = plan.exact(profile(0), TCP, *port);
    }
    plan.0
}

#[test]
fn a_revoked_flow_is_cut_in_both_directions_and_another_goes_on() {
    let lab = Lab::new();
    let (both, one) = (allowing(&lab, &[80, 81]), allowing(&lab, &[80]));
    lab.reconcile(&both);
    for family in FAMILIES {
        let mut kept = lab.connection(&lab.a, &lab.b, family, 80);
        let mut cut = lab.connection(&lab.a, &lab.b, family, 81);
        let mut cut_by_reply = lab.connection(&lab.a, &lab.b, family, 81);
        lab.follow(&both, &one, true);
        assert_eq!(lab.request(&mut cut), Dropped);
        assert_eq!(lab.answer(&mut cut_by_reply), Dropped);
        assert_eq!(lab.answer(&mut kept), Passed);
        assert_eq!(lab.request(&mut kept), Passed);
        lab.follow(&one, &both, false);
    }
}

/// What skips the rules is told of a change when the kernel has committed it, and not before:
/// else a flow could be let in once more by the rules of before.
#[test]
fn who_is_told_what_is_in_force_finds_it_in_the_kernel() {
    let lab = Lab::new();
    let (both, one) = (allowing(&lab, &[80, 81]), allowing(&lab, &[80]));
    let told = lab.node.host.run(move || {
        let told: Arc<Mutex<Vec<InForce>>> = Arc::default();
        let nft = |line: &str| {
            let output = Command::new("nft").args(line.split(' ')).output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        let listener = Arc::clone(&told);
        let on_in_force = move |in_force| {
            match in_force {
                InForce::Mark(mark) => {
                    let entry = nft("list map inet tweed-policy policy_entry");
                    let chain = format!("goto policy_{}", mark >> 27);
                    assert!(entry.contains(&chain), "{chain}: {entry}");
                }
                InForce::Nothing => assert_eq!(nft("list tables"), ""),
                InForce::Unknown => {}
            }
            listener.lock().unwrap().push(in_force);
        };
        let folder = tempfile::tempdir().unwrap();
        let mut nft = Connection::open(folder.path(), Path::new("nft")).unwrap();
        let mut table = PolicyTable::new(folder.path(), false, Box::new(on_in_force));
        table.reconcile(&mut nft, &both, true).unwrap();
        let followed = table.follow(&mut nft, &delta(&both, &one, true)).unwrap();
        assert!(followed.is_some());
        table.follow(&mut nft, &delta(&one, &both, false)).unwrap();
        table.remove(&mut nft).unwrap();
        drop(table);
        told.lock().unwrap().clone()
    });
    let expected = [
        InForce::Mark(1 << 27),
        InForce::Mark(2 << 27),
        InForce::Nothing,
    ];
    assert_eq!(told, expected);
}

/// The kernel cannot be asked just then, before anything was sent that it could refuse.
#[test]
fn a_revocation_that_could_not_be_tried_is_made_up_for() {
    let lab = Lab::new();
    let (both, one) = (allowing(&lab, &[80, 81]), allowing(&lab, &[80]));
    lab.reconcile(&both);
    let mut cut = lab.connection(&lab.a, &lab.b, Family::V4, 81);
    let delta = delta(&both, &one, true);
    let failed = lab.with(move |table| {
        // Of this thread alone.
        caps::drop(None, CapSet::Effective, CAP_NET_ADMIN).unwrap();
        let followed = table.policy.follow(&mut table.nft, &delta);
        caps::raise(None, CapSet::Effective, CAP_NET_ADMIN).unwrap();
        followed.unwrap_err().to_string()
    });
    assert!(failed.contains("Operation not permitted"), "{failed}");
    lab.reconcile(&one);
    assert_eq!(lab.answer(&mut cut), Dropped);
}

/// More changes than there are numbers: the marks are cleared, and no packet is lost.
#[test]
fn a_flow_that_stays_allowed_loses_nothing_over_all_generations() {
    let lab = Lab::new();
    let (both, one) = (allowing(&lab, &[80, 81]), allowing(&lab, &[80]));
    lab.reconcile(&both);
    let handles = |lab: &Lab| {
        let text = lab.handles();
        let lines = text.lines().filter(|line| line.contains("# handle"));
        lines.collect::<Vec<_>>().join("\n")
    };
    let before = handles(&lab);
    let flows = FAMILIES.map(|family| udp_pair(&lab.a, &lab.b, family, 53));
    let mut connections = FAMILIES.map(|family| lab.connection(&lab.a, &lab.b, family, 80));
    for round in 0..1000 {
        let (old, new) = if round % 2 == 0 {
            (&both, &one)
        } else {
            (&one, &both)
        };
        lab.follow(old, new, true);
        for (client, server) in &flows {
            client.send_to(b"x", server.local_addr().unwrap()).unwrap();
            while !arrives(server) {}
        }
    }
    assert_eq!(lab.generation(), "policy_17");
    for connection in &mut connections {
        assert_eq!(lab.request(connection), Passed);
        assert_eq!(lab.answer(connection), Passed);
    }
    assert_eq!(lab.drops(), 0);
    assert_eq!(handles(&lab), before, "nothing but elements was written");
}

/// Such a change is several transactions: before it and after it packets find what they
/// found, however often it goes there and back.
#[test]
fn a_change_of_fifty_thousand_ports_cuts_the_one_flow_and_no_other() {
    let lab = Lab::new();
    let wide = |number, ports: &[u16]| {
        let mut plan = Plan::new(&[lab.a.both(), lab.b.both()].concat())
            .policed(In, &lab.b.both())
            .identity(&lab.a.both(), identity(0))
            .pair(In, &lab.b.both(), identity(0), profile(number))
            .exact(profile(number), UDP, 53);
        for port in (10_000..60_000).chain(ports.iter().copied()) {
            plan = plan.exact(profile(number), TCP, port);
        }
        plan.0
    };
    let (both, one) = (wide(0, &[80, 81]), wide(1, &[80]));
    lab.reconcile(&both);
    let (client, server) = udp_pair(&lab.a, &lab.b, Family::V4, 53);
    let stays = lab.connection(&lab.a, &lab.b, Family::V4, 80);
    let mut connections = [stays, lab.connection(&lab.a, &lab.b, Family::V4, 81)];
    let lost = thread::scope(|scope| {
        // It ends also if a change panics, as that drops the other end.
        let (ended, has_ended) = mpsc::channel::<()>();
        let (lab, client, server) = (&lab, &client, &server);
        let sender = scope.spawn(move || {
            while has_ended.try_recv() == Err(TryRecvError::Empty) {
                client.send_to(b"x", server.local_addr().unwrap()).unwrap();
                if !arrives(server) && lab.drops() > 0 {
                    return true;
                }
            }
            false
        });
        for (old, new) in [(&both, &one), (&one, &both), (&both, &one)] {
            lab.follow(old, new, new == &one);
        }
        drop(ended);
        sender.join().unwrap()
    });
    assert!(!lost && lab.drops() == 0);
    let [stays, cut] = &mut connections;
    assert_eq!(lab.request(stays), Passed);
    assert_eq!(lab.request(cut), Dropped);
    assert_eq!(lab.look(&ruleset(), &one, true), NOTHING);
}

/// A flow that was cut does not come back with the number it has been evaluated under.
#[test]
fn a_number_that_comes_again_does_not_let_old_flows_pass() {
    let lab = Lab::new();
    let (both, one) = (allowing(&lab, &[80, 81]), allowing(&lab, &[80]));
    lab.reconcile(&both);
    for number in [8, 16] {
        while lab.generation() != format!("policy_{number}") {
            lab.follow(&both, &both, true);
        }
        let mut revoked = lab.connection(&lab.a, &lab.b, Family::V4, 81);
        lab.follow(&both, &one, true);
        for _ in 1..24 {
            lab.follow(&one, &one, true);
        }
        assert_eq!(lab.generation(), format!("policy_{number}"));
        assert_eq!(lab.request(&mut revoked), Dropped);
        lab.follow(&one, &both, false);
    }
}

/// The last policy goes, and later others come. The numbers begin anew with them.
#[test]
fn flows_that_policies_before_have_let_pass_are_evaluated_by_those_that_come_later() {
    let lab = Lab::new();
    let (both, one) = (allowing(&lab, &[80, 81]), allowing(&lab, &[80]));
    for restart in [false, true] {
        lab.reconcile(&both);
        assert_eq!(lab.generation(), "policy_1");
        let mut cut = lab.connection(&lab.a, &lab.b, Family::V4, 81);
        lab.reconcile(&Desired::default());
        if restart {
            lab.restart();
        }
        lab.reconcile(&one);
        assert_eq!(lab.generation(), "policy_1");
        assert_eq!(lab.request(&mut cut), Dropped);
        lab.reconcile(&Desired::default());
    }
}

/// Somebody else put a later number in force for a while, which flows carry since then.
#[test]
fn a_number_that_others_had_put_in_force_does_not_let_flows_pass_when_it_comes() {
    let lab = Lab::new();
    let (both, one) = (allowing(&lab, &[80, 81]), allowing(&lab, &[80]));
    lab.reconcile(&both);
    assert_eq!(lab.generation(), "policy_1");
    lab.node.host.sh(
        "nft 'delete element inet tweed-policy policy_entry { ipv4 }; \
         add element inet tweed-policy policy_entry { ipv4 : goto policy_4 }'",
    );
    let mut revoked = lab.connection(&lab.a, &lab.b, Family::V4, 81);
    assert!(lab.reconcile(&both).repaired > 0);
    lab.follow(&both, &one, true);
    while lab.generation() != "policy_4" {
        lab.follow(&one, &one, true);
    }
    assert_eq!(lab.request(&mut revoked), Dropped);
}

/// Marks of others on the same flow stay.
#[test]
fn only_the_own_bits_of_the_mark_are_written() {
    let lab = Lab::new();
    let desired = allowing(&lab, &[80]);
    lab.node.host.sh("nft -f - <<'E'
         table inet other { chain c {
           type filter hook forward priority -50
           ct mark set ct mark | 0x12345
         }
         }\nE");
    lab.reconcile(&desired);
    assert_eq!(lab.udp(&lab.a, &lab.b, Family::V4, 53), Passed);
    let marks = lab
        .node
        .host
        .sh("conntrack -L -p udp --dport 53 2>/dev/null");
    assert!(marks.contains(&format!("mark={}", 0x0801_2345)), "{marks}");
    lab.follow(&desired, &desired, true);
    assert_eq!(lab.udp(&lab.a, &lab.b, Family::V4, 53), Passed);
    let marks = lab
        .node
        .host
        .sh("conntrack -L -p udp --dport 53 2>/dev/null");
    assert!(marks.contains(&format!("mark={}", 0x1001_2345)), "{marks}");
}
