//! Routing rules: which table is asked for which packets. Only read.

use std::fmt;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use netlink_packet_route::RouteNetlinkMessage::{GetRule, NewRule};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleFlags, RuleHeader, RuleMessage};
use nix::errno::Errno;
use tweed_core::family::Family;

use crate::error::Error;
use crate::rt::{Request, Socket, address::of_family};

/// Priority of the kernel's own rule for the main table.
pub const MAIN_PRIORITY: u32 = 32_766;

/// A routing rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Rules are asked in the order of their priority, the lowest first.
    pub priority: u32,
    /// Sources of its packets; none for all.
    pub from: Option<IpNetwork>,
    /// Destinations of its packets; none for all.
    pub to: Option<IpNetwork>,
    /// The link that its packets come in by, `lo` for those of this host; none for all.
    pub incoming: Option<String>,
    /// What is done with its packets.
    pub action: Action,
    /// Whether it has a condition that a plain packet does not meet: a mark, a link that a
    /// socket is bound to, a protocol, ports, a type of service.
    pub special: bool,
    /// Whether it has conditions that are not in this type.
    pub more: bool,
    /// Whether its packets are those that do not meet its conditions (`not`).
    pub inverted: bool,
}

/// What a routing rule does with its packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// This table is asked.
    Lookup(u32),
    /// They are refused or dropped.
    Refuse,
    /// The rule of this priority comes next.
    Goto(u32),
    /// Nothing.
    Nothing,
}

impl Rule {
    /// Decodes a rule message.
    pub fn parse(message: &RuleMessage) -> Option<Self> {
        let RuleHeader {
            src_len,
            dst_len,
            tos,
            table,
            action,
            flags,
            ..
        } = &message.header;
        let mut rule = Self {
            priority: 0,
            from: None,
            to: None,
            incoming: None,
            action: match action {
                RuleAction::ToTable => Action::Lookup((*table).into()),
                RuleAction::Goto => Action::Goto(0),
                RuleAction::Blackhole | RuleAction::Unreachable | RuleAction::Prohibit => {
                    Action::Refuse
                }
                _ => Action::Nothing,
            },
            special: *tos != 0,
            more: false,
            inverted: flags.contains(RuleFlags::Invert),
        };
        let (mut mark, mut mask) = (0, u32::MAX);
        for attribute in &message.attributes {
            match attribute {
                RuleAttribute::Priority(priority) => rule.priority = *priority,
                RuleAttribute::Source(ip) => {
                    rule.from = Some(IpNetwork::new(*ip, *src_len).ok()?);
                }
                RuleAttribute::Destination(ip) => {
                    rule.to = Some(IpNetwork::new(*ip, *dst_len).ok()?);
                }
                RuleAttribute::Table(table) => {
                    if let Action::Lookup(asked) = &mut rule.action {
                        *asked = *table;
                    }
                }
                RuleAttribute::Goto(priority) => rule.action = Action::Goto(*priority),
                RuleAttribute::FwMark(value) => mark = *value,
                RuleAttribute::FwMask(value) => mask = *value,
                RuleAttribute::Iifname(link) => rule.incoming = Some(link.clone()),
                RuleAttribute::Oifname(_)
                | RuleAttribute::TunId(_)
                | RuleAttribute::IpProtocol(_)
                | RuleAttribute::SourcePortRange(_)
                | RuleAttribute::DestinationPortRange(_) => rule.special = true,
                RuleAttribute::Protocol(_)
                | RuleAttribute::SuppressPrefixLen(u32::MAX)
                | RuleAttribute::SuppressIfGroup(u32::MAX) => {}
                _ => rule.more = true,
            }
        }
        rule.special |= mark & mask != 0;
        Some(rule)
    }

    /// Whether a packet from `source`, if it has one yet, that comes in by the link `incoming`
    /// meets what the rule says of both; `lo` stands for what this host sends.
    pub fn is_from(&self, source: Option<IpAddr>, incoming: &str) -> bool {
        let from = self.from;
        let link = self.incoming.as_deref();
        from.is_none_or(|from| source.is_some_and(|ip| from.contains(ip)))
            && link.is_none_or(|link| link == incoming)
    }

    /// Whether a packet to `destination` meets what the rule says of that.
    pub fn is_to(&self, destination: IpAddr) -> bool {
        self.to.is_none_or(|to| to.contains(destination))
    }

    /// Whether a packet without a mark, as in [`Self::is_from`] and [`Self::is_to`], is one of
    /// its packets, or may be, where there is [more](Self::more) to know.
    pub fn covers(&self, source: Option<IpAddr>, incoming: &str, destination: IpAddr) -> bool {
        let meets = self.is_from(source, incoming) && self.is_to(destination) && !self.special;
        if self.inverted {
            !meets || self.more
        } else {
            meets
        }
    }
}

impl fmt::Display for Rule {
    /// As `ip rule` would write it, as far as it is known.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let not = if self.inverted { "not " } else { "" };
        write!(f, "{}: {not}from ", self.priority)?;
        match self.from {
            Some(from) => write!(f, "{from}")?,
            None => write!(f, "all")?,
        }
        if let Some(to) = self.to {
            write!(f, " to {to}")?;
        }
        if let Some(link) = &self.incoming {
            write!(f, " iif {link}")?;
        }
        if self.more || self.special {
            write!(f, " …")?;
        }
        match self.action {
            Action::Lookup(table) => write!(f, " lookup {table}"),
            Action::Goto(priority) => write!(f, " goto {priority}"),
            Action::Refuse | Action::Nothing => Ok(()),
        }
    }
}

/// The rules of a family, in the order in which they are asked.
///
/// # Errors
/// When the kernel cannot be asked.
pub fn list(socket: &mut Socket, family: Family) -> Result<Vec<Rule>, Error> {
    let mut message = RuleMessage::default();
    let wanted = of_family(family);
    message.header.family = wanted;
    let request = Request::dump("list", "routing rules".to_owned(), GetRule(message));
    let objects = match socket.dump(&request) {
        Ok(objects) => objects,
        // A kernel without IPv6, or without routing rules.
        Err(error) if matches!(error.errno(), Some(Errno::EOPNOTSUPP | Errno::EAFNOSUPPORT)) => {
            Vec::new()
        }
        Err(error) => return Err(error),
    };
    let mut rules: Vec<Rule> = objects
        .iter()
        .filter_map(|object| match object {
            NewRule(message) if message.header.family == wanted => Rule::parse(message),
            _ => None,
        })
        .collect();
    rules.sort_by_key(|rule| rule.priority);
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(from: Option<&str>, to: Option<&str>) -> Rule {
        Rule {
            priority: 5270,
            from: from.map(|text| text.parse().unwrap()),
            to: to.map(|text| text.parse().unwrap()),
            incoming: None,
            action: Action::Lookup(52),
            special: false,
            more: false,
            inverted: false,
        }
    }

    #[test]
    fn a_rule_covers_what_its_prefixes_hold() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let (node, pod) = (ip("192.0.2.1"), ip("10.244.1.5"));
        assert!(rule(None, None).covers(None, "lo", pod));
        assert!(!rule(Some("192.0.2.1/32"), None).covers(None, "lo", pod));
        assert!(rule(Some("192.0.2.1/32"), None).covers(Some(node), "lo", pod));
        assert!(!rule(Some("192.0.2.9/32"), None).covers(Some(node), "lo", pod));
        assert!(rule(None, Some("10.0.0.0/8")).covers(None, "lo", pod));
        assert!(!rule(None, Some("172.16.0.0/12")).covers(None, "lo", pod));
    }

    #[test]
    fn a_rule_for_a_link_covers_what_comes_in_by_it() {
        let pod = "10.244.1.5".parse().unwrap();
        let by = |link: &str| Rule {
            incoming: Some(link.to_owned()),
            ..rule(None, None)
        };
        assert!(by("eth0").covers(Some(pod), "eth0", pod));
        assert!(!by("eth0").covers(Some(pod), "eth1", pod));
        assert!(!by("eth0").covers(None, "lo", pod));
        assert!(by("lo").covers(None, "lo", pod));
        assert_eq!(by("eth0").to_string(), "5270: from all iif eth0 lookup 52");
    }

    #[test]
    fn an_inverted_rule_covers_what_does_not_meet_it() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let (node, pod) = (ip("192.0.2.1"), ip("10.244.1.5"));
        let not = |from, to| Rule {
            inverted: true,
            ..rule(from, to)
        };
        assert!(not(Some("192.0.2.9/32"), None).covers(Some(node), "lo", pod));
        assert!(not(Some("192.0.2.9/32"), None).covers(None, "lo", pod));
        assert!(!not(Some("192.0.2.1/32"), None).covers(Some(node), "lo", pod));
        assert!(!not(None, Some("10.0.0.0/8")).covers(None, "lo", pod));
        assert!(not(Some("192.0.2.1/32"), Some("172.16.0.0/12")).covers(Some(node), "lo", pod));
        assert!(!not(None, None).covers(None, "lo", pod));
        let unknown = Rule {
            more: true,
            ..not(None, None)
        };
        assert!(unknown.covers(None, "lo", pod), "it may");
        let marked = Rule {
            special: true,
            ..not(None, None)
        };
        assert!(marked.covers(None, "lo", pod), "what has no mark");
        assert_eq!(marked.to_string(), "5270: not from all … lookup 52");
    }

    #[test]
    fn it_reads_as_the_program_ip_writes_it() {
        assert_eq!(rule(None, None).to_string(), "5270: from all lookup 52");
        let both = rule(Some("192.0.2.0/24"), Some("10.0.0.0/8"));
        let text = "5270: from 192.0.2.0/24 to 10.0.0.0/8 lookup 52";
        assert_eq!(both.to_string(), text);
    }
}
