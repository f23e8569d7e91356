//! Routing rules of others (`ip rule`) that lead packets of pods past tweed's routes, which
//! are in the main table: those of a VPN that come before it, rules by source, as machines
//! with several uplinks have them, or by the link that packets come in by. And routes of
//! others to some of the pods alone, in the tables that rules lead to.
//!
//! One entry point, [`problems`]. For each rule and each kind of way that packets of pods go
//! the kernel is asked which route one takes that the rule is for; for each route in a
//! rule's table to some pods, which one a packet to these takes. Where it is not tweed's, the
//! rule is named that led there. It only reads. Where there are only the kernel's own rules
//! it reads these and the table of the machine's own addresses.
//!
//! Packets have no mark, no protocol and no ports here: what others mark is not known.

mod ways;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use tweed_core::{family::Family, problem::Problem, problem::ProblemKind};
use tweed_netlink::route::{self, Kind, LOCAL_TABLE, MAIN_TABLE, Route};
use tweed_netlink::rule::{self, Action, MAIN_PRIORITY, Rule};
use tweed_netlink::{Error, Socket, path};

use crate::ranges::widest;
use ways::{Destination, Source, To};
pub use ways::{Peer, Ways};

/// Maximum number of routes in one table that the kernel is asked about.
const MAX_ROUTES: usize = 32;
/// Maximum number of routes that a problem names.
const MAX_NAMED: usize = 4;
/// `RTN_THROW`: as if the table had no route.
const THROW: Kind = Kind::Other(9);
/// `RTN_BLACKHOLE` and `RTN_PROHIBIT` are the others.
const REFUSING: [Kind; 3] = [Kind::Unreachable, Kind::Other(6), Kind::Other(8)];

/// What is wrong with a rule.
struct Found<'a> {
    rule: &'a Rule,
    /// The ranges of pods to which it leads packets past tweed's routes.
    ranges: Vec<IpNetwork>,
    /// Whether pods cannot reach the world outside by it.
    outside: bool,
}

/// Rules that lead packets past the main table or refuse them, and routes of others that take
/// packets to some pods.
///
/// # Errors
/// When rules or routes cannot be read.
pub fn problems(socket: &mut Socket, ways: &Ways) -> Result<Vec<Problem>, Error> {
    let mut problems = Vec::new();
    for family in [Family::V4, Family::V6] {
        let has_pods = ways.own.iter().any(|own| Family::of(own.ip()) == family);
        if has_pods {
            problems.extend(of_family(socket, ways, family)?);
        }
    }
    Ok(problems)
}

fn of_family(socket: &mut Socket, ways: &Ways, family: Family) -> Result<Vec<Problem>, Error> {
    let mut rules = rule::list(socket, family)?;
    // Those that no plain packet meets are not for the packets here.
    let may_be_met = |rule: &Rule| rule.inverted || !rule.special;
    rules.retain(|rule| rule.priority < MAIN_PRIORITY && may_be_met(rule));
    let mut tables = BTreeMap::new();
    for table in rules.iter().filter_map(table_of) {
        let wanted = |route: &Route| ways.concerns(route);
        let mut routes = route::in_table(socket, table, family, wanted)?;
        routes.sort_by_key(|route| route.destination.prefix());
        tables.insert(table, routes);
    }
    let uplinks = if rules.iter().any(is_foreign) {
        ways.uplinks(socket, family)
    } else {
        BTreeSet::new()
    };
    let mut look = Look {
        socket,
        ways,
        family,
        uplinks,
        rules: &rules,
        tables: &tables,
        found: BTreeMap::new(),
        taken: BTreeMap::new(),
    };
    for rule in &rules {
        look.follow_rule(rule);
        look.follow_routes(rule);
    }
    Ok(look.problems())
}

/// A look at the rules of one family, and what it has found.
struct Look<'a> {
    socket: &'a mut Socket,
    ways: &'a Ways<'a>,
    family: Family,
    /// The links that packets from outside come in by.
    uplinks: BTreeSet<u32>,
    /// The rules before that for the main table.
    rules: &'a [Rule],
    /// Of the routes in their tables those that say anything of packets of pods, the widest
    /// first.
    tables: &'a BTreeMap<u32, Vec<Route>>,
    /// By what the rule is.
    found: BTreeMap<String, Found<'a>>,
    /// By the table.
    taken: BTreeMap<u32, (&'a Rule, Vec<&'a Route>)>,
}

impl<'a> Look<'a> {
    /// What the rule does whatever routes its table has to pods.
    fn follow_rule(&mut self, rule: &'a Rule) {
        if !is_foreign(rule) {
            return;
        }
        for (source, destination) in self.ways.packets(rule, None, &self.uplinks, self.family) {
            let by_routes = table_of(rule).is_some() && destination.to != To::Outside;
            if !by_routes && self.leads_away(rule, source, destination) {
                self.note(rule, destination);
            }
        }
    }

    /// What the routes in the table of the rule do that are to pods, or around their ranges.
    fn follow_routes(&mut self, rule: &'a Rule) {
        let (ways, tables) = (self.ways, self.tables);
        let routes = table_of(rule).and_then(|table| tables.get_key_value(&table));
        let Some((table, routes)) = routes else {
            return;
        };
        for route in routes
            .iter()
            .filter(|route| ways.may_take(route))
            .take(MAX_ROUTES)
        {
            let within = Some(route.destination);
            let packets = ways.packets(rule, within, &self.uplinks, self.family);
            let led = packets
                .into_iter()
                .find(|(source, destination)| self.leads_away(rule, *source, *destination));
            let Some((_, destination)) = led else {
                continue;
            };
            let range = widest(ways.ranges, destination.address);
            let found = self.found.get(&rule.to_string());
            match destination.to {
                _ if found.is_some_and(|found| found.ranges.contains(&range)) => {}
                To::Pod(_, own) | To::Free(own) if own.prefix() <= route.destination.prefix() => {
                    let (_, routes) = self.taken.entry(*table).or_insert((rule, Vec::new()));
                    routes.push(route);
                }
                _ => self.note(rule, destination),
            }
        }
    }

    /// Whether the kernel leads such a packet elsewhere than tweed does, by this rule.
    fn leads_away(&mut self, rule: &Rule, from: Source, to: Destination) -> bool {
        // No route at all is an answer as well: a rule may refuse packets, or a strict
        // `rp_filter`, as the answers are led elsewhere too.
        let answer = path::lookup(self.socket, to.address, from.address, from.incoming);
        let mut route = answer.ok().flatten();
        // Until there is a rule of others, the kernel has both in one.
        if let Some(route) = &mut route
            && (route.kind, route.table) == (ways::LOCAL, MAIN_TABLE)
        {
            route.table = LOCAL_TABLE;
        }
        if route
            .as_ref()
            .is_some_and(|route| self.ways.is_right(route, to.to))
        {
            return false;
        }
        let is_free = matches!(to.to, To::Free(_));
        if route.is_none() && is_free && rule.more {
            // So tweed's own route says.
            return false;
        }
        let table = route.map(|route| route.table);
        if table == Some(LOCAL_TABLE) {
            return rule.action == Action::Lookup(LOCAL_TABLE);
        }
        let incoming = self.ways.name(from.incoming);
        let leads_away = |table| {
            let routes = self.tables.get(&table).into_iter().flatten();
            let route = longest(routes, to.address);
            route.is_some_and(|route| match route.kind {
                THROW => false,
                kind => REFUSING.contains(&kind) || !self.ways.is_right(route, to.to),
            })
        };
        let covers = |rule: &Rule| rule.covers(from.address, incoming, to.address);
        culprit(self.rules, table, leads_away, covers) == Some(rule)
    }

    fn note(&mut self, rule: &'a Rule, to: Destination) {
        let new = || Found {
            rule,
            ranges: Vec::new(),
            outside: false,
        };
        let found = self.found.entry(rule.to_string()).or_insert_with(new);
        let range = widest(self.ways.ranges, to.address);
        match to.to {
            To::Outside => found.outside = true,
            _ if found.ranges.contains(&range) => {}
            _ => found.ranges.push(range),
        }
    }

    fn problems(&self) -> Vec<Problem> {
        let shadowed = self
            .found
            .values()
            .map(|found| shadowed(self.family, found));
        let tables = self.taken.iter();
        let taken = tables.map(|(table, (rule, routes))| takes(self.family, *table, rule, routes));
        shadowed.chain(taken).collect()
    }
}

/// The table beside the main one that a rule leads to; not what the kernel shows for one that
/// leads to several.
fn table_of(rule: &Rule) -> Option<u32> {
    match rule.action {
        Action::Lookup(table) if table > 0 && table != MAIN_TABLE => Some(table),
        _ => None,
    }
}

/// Whether a rule is one of others that comes before that for the main table.
fn is_foreign(rule: &Rule) -> bool {
    let own = Action::Lookup(MAIN_TABLE);
    let is_harmless = [own, Action::Lookup(LOCAL_TABLE), Action::Nothing].contains(&rule.action);
    rule.priority < MAIN_PRIORITY && !is_harmless
}

/// The route of a table that packets to `destination` take.
fn longest<'a>(routes: impl Iterator<Item = &'a Route>, destination: IpAddr) -> Option<&'a Route> {
    let holding = routes.filter(|route| route.destination.contains(destination));
    holding.max_by_key(|route| route.destination.prefix())
}

/// The rule by which the route of a packet was found in `table`, or by which there is none;
/// nobody where it was found in the main table, nor where no rule is the reason that there is
/// none. `covers` says which rules are for the packet, `leads_away` which tables have a route
/// for it that is not tweed's.
fn culprit(
    rules: &[Rule],
    table: Option<u32>,
    leads_away: impl Fn(u32) -> bool,
    covers: impl Fn(&Rule) -> bool,
) -> Option<&Rule> {
    if table == Some(MAIN_TABLE) {
        return None;
    }
    let leads_to_main = |rule: &&Rule| rule.action == Action::Lookup(MAIN_TABLE) && covers(rule);
    let suspects = rules
        .iter()
        .take_while(|rule| table.is_some() || !leads_to_main(rule));
    let decides = |rule: &&Rule| match rule.action {
        Action::Lookup(asked) => match table {
            Some(table) => table == asked,
            None => !rule.more && leads_away(asked),
        },
        Action::Refuse => table.is_none(),
        // Past the rule for the main table, to one that decides.
        Action::Goto(priority) => priority > MAIN_PRIORITY,
        Action::Nothing => false,
    };
    let foreign = suspects.filter(|rule| is_foreign(rule) && covers(rule));
    // The first that the lookup meets for certain, or else the first with a condition
    // that is not known here.
    foreign.filter(decides).min_by_key(|rule| rule.more)
}

/// The program that shows rules and routes of a family.
fn program(family: Family) -> &'static str {
    match family {
        Family::V4 => "ip",
        Family::V6 => "ip -6",
    }
}

/// The commands that have packets to these ranges routed before `rule`.
fn lead_to_main(family: Family, rule: &Rule, ranges: impl Iterator<Item = IpNetwork>) -> String {
    let before = rule.priority.saturating_sub(1);
    let program = program(family);
    let command = |range| format!("{program} rule add to {range} lookup main priority {before}");
    ranges.map(command).collect::<Vec<_>>().join(" && ")
}

fn shadowed(family: Family, found: &Found) -> Problem {
    let Found {
        rule,
        ranges,
        outside,
    } = found;
    let program = program(family);
    let (mut what, mut cure) = (Vec::new(), Vec::new());
    if !ranges.is_empty() {
        let text: Vec<String> = ranges.iter().map(IpNetwork::to_string).collect();
        what.push(format!(
            "leads packets to pods ({}) past the main table, in which tweed's routes are",
            text.join(", ")
        ));
        cure.push(format!(
            "run `{}`, and after each reboot; or name one range that holds the pod CIDRs of all \
             Nodes",
            lead_to_main(family, rule, ranges.iter().copied())
        ));
    }
    if *outside {
        let leads =
            "refuses what pods send to the world outside, or leads it back into the overlay";
        what.push(leads.to_owned());
        cure.push(
            "have the rule and its table let what pods send to the world outside leave the node"
                .to_owned(),
        );
    }
    let message = format!(
        "the routing rule `{rule}` of {program} rule {}",
        what.join(", and ")
    );
    let object = format!("{program} rule {rule}");
    let problem = Problem::new(ProblemKind::RouteShadowed, object, message);
    problem.with_cure(cure.join("; "))
}

/// That `routes` of somebody else, in a table that `rule` leads to, take packets to pods.
fn takes(family: Family, table: u32, rule: &Rule, routes: &[&Route]) -> Problem {
    let program = program(family);
    let named = routes.iter().take(MAX_NAMED);
    let text: Vec<String> = { named.clone() }
        .map(|route| format!("`{route}` of protocol {}", route.protocol))
        .collect();
    let more = match routes.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    let message = format!(
        "somebody else has routes to pods in table {table}, to which the routing rule `{rule}` of \
         {program} rule leads before tweed's: {}{more}",
        text.join(", ")
    );
    let show = format!("`{program} route show table {table}` shows them");
    let cure = match table {
        LOCAL_TABLE => format!("take these addresses off this machine: {show}"),
        _ => format!(
            "remove them, if nothing else needs them: {show}; or run `{}`, and after each reboot",
            lead_to_main(family, rule, named.map(|route| route.destination))
        ),
    };
    let object = format!("{program} table {table}");
    Problem::new(ProblemKind::RouteTaken, object, message).with_cure(cure)
}

#[cfg(test)]
mod tests;
