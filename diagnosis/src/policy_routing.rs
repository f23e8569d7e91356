//! Routing rules of others (`ip rule`) that lead packets past tweed's routes, which
//! are in the main table: those of a VPN that come before it, or rules by source, as
//! machines with several uplinks have them.
//!
//! One entry point, [`problems`]. The kernel is asked which route it takes to a pod and
//! to a peer; where that is in another table, the rule is named that led there. It only
//! reads, and asks for no route where there are only the kernel's own rules.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use tweed_core::{family::Family, problem::Problem, problem::ProblemKind};
use tweed_netlink::path;
use tweed_netlink::route::MAIN_TABLE;
use tweed_netlink::rule::{self, Action, MAIN_PRIORITY, Rule};
use tweed_netlink::{Error, Socket};

/// The table of the machine's own addresses.
const LOCAL_TABLE: u32 = 255;

/// An address that tweed has a route to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// The address.
    pub address: IpAddr,
    /// The range of pods that it is in.
    pub range: IpNetwork,
}

/// Rules that lead packets to `targets` past the main table: of any source, or of one of
/// `sources`, which are addresses of this machine.
///
/// # Errors
/// When the rules cannot be read.
pub fn problems(
    socket: &mut Socket,
    targets: &[Target],
    sources: &[IpAddr],
) -> Result<Vec<Problem>, Error> {
    let mut problems = Vec::new();
    for family in [Family::V4, Family::V6] {
        let of_family = |ip: &IpAddr| Family::of(*ip) == family;
        let mut targets = targets.iter().filter(|t| of_family(&t.address)).peekable();
        if targets.peek().is_none() {
            continue;
        }
        let rules = rule::list(socket, family)?;
        if !rules.iter().any(is_foreign) {
            continue;
        }
        let mut hidden = BTreeMap::<_, (Rule, Vec<IpNetwork>)>::new();
        for target in targets {
            let sources = sources.iter().copied().filter(of_family).map(Some);
            for source in std::iter::once(None).chain(sources) {
                // No route at all is an answer as well: a rule may refuse packets.
                let answer = path::lookup(socket, target.address, source);
                let table = answer.ok().flatten().map(|route| route.table);
                let Some(rule) = culprit(&rules, table, source, target.address) else {
                    continue;
                };
                let new = || (rule.clone(), Vec::new());
                let (_, ranges) = hidden.entry(rule.to_string()).or_insert_with(new);
                if !ranges.contains(&target.range) {
                    ranges.push(target.range);
                }
            }
        }
        let named = hidden.into_values();
        problems.extend(named.map(|(rule, ranges)| problem(family, &rule, &ranges)));
    }
    Ok(problems)
}

/// Whether a rule is one of others that comes before that for the main table.
fn is_foreign(rule: &Rule) -> bool {
    let own = Action::Lookup(MAIN_TABLE);
    let is_harmless = [own, Action::Lookup(LOCAL_TABLE), Action::Nothing].contains(&rule.action);
    rule.priority < MAIN_PRIORITY && !is_harmless
}

/// The rule by which the route to `destination` was found in `table`, or by which there
/// is none; nobody where it was found in the main table, nor where no rule is the reason
/// that there is none.
fn culprit(
    rules: &[Rule],
    table: Option<u32>,
    source: Option<IpAddr>,
    destination: IpAddr,
) -> Option<&Rule> {
    if table == Some(MAIN_TABLE) {
        return None;
    }
    let covers = |rule: &&Rule| is_foreign(rule) && rule.covers(source, destination);
    let decides = |rule: &&Rule| match rule.action {
        Action::Lookup(asked) => table == Some(asked),
        Action::Refuse => table.is_none(),
        // Past the rule for the main table, to one that decides.
        Action::Goto(priority) => priority > MAIN_PRIORITY,
        Action::Nothing => false,
    };
    let suspects = rules.iter().filter(covers).filter(decides);
    // The first that the lookup meets for certain, or else the first with a condition
    // that is not known here.
    suspects.min_by_key(|rule| rule.more)
}

fn problem(family: Family, rule: &Rule, ranges: &[IpNetwork]) -> Problem {
    let program = match family {
        Family::V4 => "ip",
        Family::V6 => "ip -6",
    };
    let before = rule.priority.saturating_sub(1);
    let text: Vec<String> = ranges.iter().map(IpNetwork::to_string).collect();
    let commands: Vec<String> = ranges
        .iter()
        .map(|range| format!("{program} rule add to {range} lookup main priority {before}"))
        .collect();
    let message = format!(
        "the routing rule `{rule}` of {program} rule leads packets to pods ({}) past the main \
         table, in which tweed's routes are",
        text.join(", ")
    );
    let object = format!("{program} rule {}", rule.priority);
    let problem = Problem::new(ProblemKind::RouteShadowed, object, message);
    problem.with_cure(format!(
        "run `{}`, and after each reboot; or name one range that holds the pod CIDRs of all Nodes",
        commands.join(" && ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A rule that leads to a table, or refuses.
    fn rule(priority: u32, from: Option<&str>, table: Option<u32>) -> Rule {
        Rule {
            priority,
            from: from.map(|text| text.parse().unwrap()),
            to: None,
            action: table.map_or(Action::Refuse, Action::Lookup),
            special: false,
            more: false,
            inverted: false,
        }
    }

    #[test]
    fn the_rule_that_leads_away_is_named_and_no_other() {
        let rules = [
            rule(0, None, Some(LOCAL_TABLE)),
            rule(100, Some("192.0.2.9/32"), Some(101)),
            rule(200, Some("192.0.2.1/32"), Some(102)),
            rule(5270, None, Some(52)),
            rule(MAIN_PRIORITY, None, Some(MAIN_TABLE)),
        ];
        let pod: IpAddr = "10.244.1.5".parse().unwrap();
        let node: IpAddr = "192.0.2.1".parse().unwrap();
        let named = |table, source| culprit(&rules, table, source, pod).map(|rule| rule.priority);
        assert_eq!(named(Some(MAIN_TABLE), None), None);
        assert_eq!(named(Some(52), None), Some(5270));
        assert_eq!(named(Some(102), Some(node)), Some(200));
        assert_eq!(named(Some(52), Some(node)), Some(5270));
        // No route: nothing says that a rule is the reason.
        assert_eq!(named(None, Some(node)), None);
    }

    #[test]
    fn a_rule_that_refuses_is_named() {
        let rules = [rule(7, None, None), rule(9, None, Some(52))];
        let pod = "10.244.1.5".parse().unwrap();
        let named = culprit(&rules, None, None, pod).map(|rule| rule.priority);
        assert_eq!(named, Some(7));
    }

    /// The rules of Tailscale: what has its mark is led past its table.
    #[test]
    fn a_rule_that_asks_for_a_mark_is_not_named_for_one_that_asks_for_nothing() {
        let marked = |priority, table| Rule {
            special: true,
            ..rule(priority, None, table)
        };
        let more = |priority, table| Rule {
            more: true,
            ..rule(priority, None, table)
        };
        let pod = "10.244.1.5".parse().unwrap();
        let named = |rules: &[Rule], table| culprit(rules, table, None, pod).map(|r| r.priority);
        let tailscale = [
            marked(5210, Some(MAIN_TABLE)),
            marked(5250, None),
            rule(5270, None, Some(52)),
        ];
        assert_eq!(named(&tailscale, Some(52)), Some(5270));
        for first in [marked(100, Some(52)), more(100, Some(52))] {
            let same_table = [first, rule(5270, None, Some(52))];
            assert_eq!(named(&same_table, Some(52)), Some(5270));
        }
        assert_eq!(named(&[more(100, Some(52))], Some(52)), Some(100));
        assert_eq!(named(&[marked(100, Some(52))], Some(52)), None);
        // No route at all: the marked rule refuses what has its mark.
        assert_eq!(named(&tailscale[..2], None), None);
        assert_eq!(named(&[more(7, None)], None), Some(7));
        let refused = [more(7, None), rule(9, None, None)];
        assert_eq!(named(&refused, None), Some(9));
        // It refuses, and there is a route.
        assert_eq!(named(&refused, Some(52)), None);
    }

    #[test]
    fn a_rule_that_leads_to_another_is_named_if_that_is_behind_the_main_table_s() {
        let to = |priority, action| Rule {
            action,
            ..rule(priority, None, None)
        };
        let behind = to(7, Action::Goto(40_000));
        let before = to(7, Action::Goto(100));
        let pod = "10.244.1.5".parse().unwrap();
        let rules = |first| [first, rule(100, None, Some(52)), to(200, Action::Nothing)];
        let named = |rules: &[Rule], table| culprit(rules, table, None, pod).map(|r| r.priority);
        assert_eq!(named(&rules(behind.clone()), Some(52)), Some(7));
        assert_eq!(named(&rules(behind), None), Some(7));
        assert_eq!(named(&rules(before.clone()), Some(52)), Some(100));
        assert_eq!(named(&rules(before), None), None);
    }

    /// As `wg-quick` makes it: what has no mark is led to the tunnel.
    #[test]
    fn an_inverted_rule_is_named_for_what_does_not_meet_it() {
        let not = |from, special| Rule {
            inverted: true,
            special,
            ..rule(100, from, Some(52))
        };
        let (pod, node) = ("10.244.1.5".parse().unwrap(), "192.0.2.1".parse().unwrap());
        let named = |rule: Rule, source| culprit(&[rule], Some(52), source, pod).is_some();
        assert!(named(not(None, true), None), "not fwmark 0xca6c");
        assert!(named(not(Some("192.0.2.9/32"), false), Some(node)));
        assert!(!named(not(Some("192.0.2.1/32"), false), Some(node)));
    }

    #[test]
    fn the_cure_comes_before_the_rule() {
        let ranges = ["fd00:0:0:1::/64".parse().unwrap()];
        let problem = problem(Family::V6, &rule(5270, None, Some(52)), &ranges);
        let command = "`ip -6 rule add to fd00:0:0:1::/64 lookup main priority 5269`";
        assert!(problem.cure.contains(command), "{problem}");
        assert!(
            problem.message.contains("`5270: from all lookup 52`"),
            "{problem}"
        );
    }
}
