use super::*;

/// A rule that leads to a table, or refuses.
fn rule(priority: u32, from: Option<&str>, table: Option<u32>) -> Rule {
    Rule {
        priority,
        from: from.map(|text| text.parse().unwrap()),
        to: None,
        incoming: None,
        action: table.map_or(Action::Refuse, Action::Lookup),
        special: false,
        more: false,
        inverted: false,
    }
}

/// The rule that is named for a packet of this host, where no table refuses any.
fn named(
    rules: &[Rule],
    table: Option<u32>,
    source: Option<IpAddr>,
    destination: IpAddr,
) -> Option<u32> {
    let covers = |rule: &Rule| rule.covers(source, "lo", destination);
    culprit(rules, table, |_| false, covers).map(|rule| rule.priority)
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
    let named = |table, source| named(&rules, table, source, pod);
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
    assert_eq!(named(&rules, None, None, pod), Some(7));
}

#[test]
fn without_a_route_the_first_table_that_leads_away_is_named_if_the_main_one_is_not_before() {
    let [main, away, refuse] =
        [(7, Some(MAIN_TABLE)), (8, Some(52)), (9, None)].map(|(at, to)| rule(at, None, to));
    let named = |rules: &[Rule]| {
        let culprit = culprit(rules, None, |table| table == 52, |_| true);
        culprit.map(|rule| rule.priority)
    };
    assert_eq!(named(&[away.clone(), refuse.clone()]), Some(8));
    assert_eq!(named(&[main.clone(), away, refuse.clone()]), None);
    assert_eq!(named(&[refuse, main]), Some(9));
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
    let named = |rules: &[Rule], table| named(rules, table, None, pod);
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
    let named = |rules: &[Rule], table| named(rules, table, None, pod);
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
    let named = |rule: Rule, source| named(&[rule], Some(52), source, pod).is_some();
    assert!(named(not(None, true), None), "not fwmark 0xca6c");
    assert!(named(not(Some("192.0.2.9/32"), false), Some(node)));
    assert!(!named(not(Some("192.0.2.1/32"), false), Some(node)));
}

#[test]
fn the_cure_comes_before_the_rule() {
    let found = Found {
        rule: &rule(5270, None, Some(52)),
        ranges: vec!["fd00:0:0:1::/64".parse().unwrap()],
        outside: false,
    };
    let problem = shadowed(Family::V6, &found);
    let command = "`ip -6 rule add to fd00:0:0:1::/64 lookup main priority 5269`";
    assert!(problem.cure.contains(command), "{problem}");
    assert!(
        problem.message.contains("`5270: from all lookup 52`"),
        "{problem}"
    );
}

#[test]
fn the_longest_route_decides() {
    let route = |to: &str, kind| Route {
        kind,
        ..Route::to(to.parse().unwrap(), 4)
    };
    let routes = [
        route("10.244.2.0/24", Kind::Unreachable),
        route("0.0.0.0/0", Kind::Other(6)),
        route("10.244.0.0/16", Kind::Unicast),
    ];
    let kind = |to: &str| longest(routes.iter(), to.parse().unwrap()).map(|route| route.kind);
    assert_eq!(kind("198.41.0.4"), Some(Kind::Other(6)));
    assert_eq!(kind("10.244.2.7"), Some(Kind::Unreachable));
    assert_eq!(kind("10.244.1.5"), Some(Kind::Unicast));
    assert_eq!(kind("fd00::1"), None);
}
