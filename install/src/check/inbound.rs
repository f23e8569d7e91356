//! Firewalls that drop inbound packets by default: whether they accept the VXLAN
//! packets of other nodes, by their configuration.
//!
//! That is what holds when they start, whatever the rules are now; and where the rules
//! that they generate leave open whether a packet may be accepted, it says more.

use std::{fs, path::Path};

use tweed_core::problem::{Problem, ProblemKind};

use super::{Outcome, ok};
use crate::{displaced::names, places::Places};

/// Symbolic links that systemd creates when firewalld is enabled.
const FIREWALLD: [&str; 2] = [
    "/etc/systemd/system/dbus-org.fedoraproject.FirewallD1.service",
    "/etc/systemd/system/multi-user.target.wants/firewalld.service",
];
const FIREWALLD_CONFIG: &str = "/etc/firewalld/firewalld.conf";
const FIREWALLD_ZONES: &str = "/etc/firewalld/zones";
const UFW_CONFIG: &str = "/etc/ufw/ufw.conf";
const UFW_DEFAULTS: &str = "/etc/default/ufw";
const UFW_RULES: [&str; 2] = ["/etc/ufw/user.rules", "/etc/ufw/user6.rules"];

pub(super) fn find(places: &Places, port: u16) -> Vec<Outcome> {
    let read = |path: &str| fs::read_to_string(places.on_host(path)).unwrap_or_default();
    let mut findings = Vec::new();
    if FIREWALLD
        .iter()
        .any(|link| places.on_host(link).is_symlink())
    {
        let zones = zones(&places.on_host(FIREWALLD_ZONES));
        findings.push(judge_firewalld(&read(FIREWALLD_CONFIG), &zones, port));
    }
    if setting(&read(UFW_CONFIG), "ENABLED") == Some("yes") {
        let rules: String = UFW_RULES.iter().map(|path| read(path)).collect();
        findings.push(judge_ufw(&read(UFW_DEFAULTS), &rules, port));
    }
    findings
}

/// A zone with a configuration of its own.
struct Zone {
    name: String,
    xml: String,
}

fn zones(folder: &Path) -> Vec<Zone> {
    let zone = |file: &String| {
        let name = file.strip_suffix(".xml")?.to_owned();
        let xml = fs::read_to_string(folder.join(file)).ok()?;
        Some(Zone { name, xml })
    };
    let names = names(folder).unwrap_or_default();
    names.iter().filter_map(zone).collect()
}

fn judge_firewalld(config: &str, zones: &[Zone], port: u16) -> Outcome {
    let default = setting(config, "DefaultZone").unwrap_or("public");
    if default == "trusted" || zones.iter().any(|zone| lets_in(zone, port)) {
        return ok(format!("firewalld lets UDP port {port} in"));
    }
    let message = format!(
        "firewalld is enabled, and none of its zones lets UDP port {port} in: it refuses the \
         packets of other nodes, or will when it starts"
    );
    let problem = Problem::new(ProblemKind::InboundDrop, "firewalld", message);
    Err(problem.with_cure(format!(
        "run `firewall-cmd --permanent --add-port={port}/udp && firewall-cmd --reload`, or \
             put the nodes' network into the zone trusted with --add-source"
    )))
}

/// Whether a zone accepts the port, or everything from some source.
fn lets_in(zone: &Zone, port: u16) -> bool {
    let mut tags = zone.xml.split('<');
    let from_somewhere = |tag: &str| {
        tag.starts_with("source ")
            || (tag.starts_with("interface ")
                && !attribute(tag, "name").is_some_and(|name| name.starts_with("tw")))
    };
    if zone.name == "trusted" {
        return tags.any(from_somewhere);
    }
    tags.any(|tag| {
        tag.starts_with("port ")
            && attribute(tag, "protocol") == Some("udp")
            && attribute(tag, "port").is_some_and(|ports| covers(ports, '-', port))
    })
}

fn attribute<'a>(tag: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = tag.split_once(&format!(" {name}=\""))?;
    Some(rest.split_once('"')?.0)
}

fn judge_ufw(defaults: &str, rules: &str, port: u16) -> Outcome {
    let policy = setting(defaults, "DEFAULT_INPUT_POLICY").unwrap_or("DROP");
    if policy == "ACCEPT" || rules.lines().any(|line| allows(line, port)) {
        return ok(format!("ufw lets UDP port {port} in"));
    }
    let message = format!(
        "ufw is enabled, and none of its rules lets UDP port {port} in: it drops the packets of \
         other nodes, or will when it starts"
    );
    let problem = Problem::new(ProblemKind::InboundDrop, "ufw", message);
    Err(problem.with_cure(format!(
        "run `ufw allow {port}/udp`, or, for each node, `ufw allow from <its address>`"
    )))
}

/// Whether a line is a rule that accepts the port, as ufw stores rules:
/// `### tuple ### allow udp 8472 0.0.0.0/0 any 192.0.2.0/24 in`.
fn allows(line: &str, port: u16) -> bool {
    let Some(tuple) = line.strip_prefix("### tuple ### ") else {
        return false;
    };
    let mut fields = tuple.split_ascii_whitespace();
    let (action, protocol, ports) = (fields.next(), fields.next(), fields.next());
    let way = fields.next_back();
    matches!(action, Some("allow" | "allow_log" | "allow_log-all"))
        && matches!(protocol, Some("udp" | "any"))
        && ports.is_some_and(|ports| ports == "any" || covers(ports, ':', port))
        && way.is_some_and(|way| way == "in" || way.starts_with("in_"))
}

/// Whether a list of ports and ranges contains the port.
fn covers(ports: &str, dash: char, port: u16) -> bool {
    ports.split(',').any(|part| {
        let (first, last) = part.split_once(dash).unwrap_or((part, part));
        match (first.parse::<u16>(), last.parse::<u16>()) {
            (Ok(first), Ok(last)) => (first..=last).contains(&port),
            _ => false,
        }
    })
}

/// The last value of `KEY=value`, with or without quotes.
fn setting<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let value = |line: &'a str| line.trim().strip_prefix(key)?.strip_prefix('=');
    let value = text.lines().filter_map(value).next_back()?;
    Some(value.trim().trim_matches('"'))
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    fn firewalld(config: &str, zone: &str, xml: &str) -> Level {
        let zones = [Zone {
            name: zone.to_owned(),
            xml: xml.to_owned(),
        }];
        Level::of(&judge_firewalld(config, &zones, 8472))
    }

    #[test]
    fn firewalld_takes_what_a_zone_names() {
        let port = |xml: &str| firewalld("DefaultZone=public\n", "public", xml);
        assert_eq!(port(r#"<port port="8472" protocol="udp"/>"#), Level::Ok);
        assert_eq!(
            port(r#"<port protocol="udp" port="8000-9000"/>"#),
            Level::Ok
        );
        assert_eq!(
            port(r#"<port port="8472" protocol="tcp"/>"#),
            Level::Warning
        );
        assert_eq!(
            port(r#"<source-port port="8472" protocol="udp"/>"#),
            Level::Warning
        );
        assert_eq!(port(r#"<service name="ssh"/>"#), Level::Warning);
    }

    #[test]
    fn a_trusted_network_is_taken_and_pods_links_are_no_network() {
        let trusted = |xml: &str| firewalld("", "trusted", xml);
        let pods = r#"<zone target="ACCEPT"><interface name="tw+"/></zone>"#;
        assert_eq!(trusted(pods), Level::Warning);
        let nodes = r#"<zone target="ACCEPT"><source address="192.0.2.0/24"/></zone>"#;
        assert_eq!(trusted(nodes), Level::Ok);
        assert_eq!(firewalld("DefaultZone=trusted", "x", ""), Level::Ok);
    }

    #[test]
    fn ufw_takes_what_a_rule_allows() {
        let rule = |tuple: &str| {
            let rules = format!("### tuple ### {tuple}\n-A ufw-user-input -j ACCEPT\n");
            Level::of(&judge_ufw("DEFAULT_INPUT_POLICY=\"DROP\"\n", &rules, 8472))
        };
        for tuple in [
            "allow udp 8472 0.0.0.0/0 any 0.0.0.0/0 in",
            "allow any 8472 0.0.0.0/0 any 192.0.2.0/24 in_eth0",
            "allow udp 80,8000:9000 0.0.0.0/0 any 0.0.0.0/0 in",
            "allow any any 0.0.0.0/0 any 192.0.2.12 in",
        ] {
            assert_eq!(rule(tuple), Level::Ok, "{tuple}");
        }
        for tuple in [
            "allow tcp 8472 0.0.0.0/0 any 0.0.0.0/0 in",
            "deny udp 8472 0.0.0.0/0 any 0.0.0.0/0 in",
            "allow udp 8473 0.0.0.0/0 any 0.0.0.0/0 in",
            "allow udp 8472 0.0.0.0/0 any 0.0.0.0/0 out",
            "route:allow any any 0.0.0.0/0 any 0.0.0.0/0 in_tw+",
        ] {
            assert_eq!(rule(tuple), Level::Warning, "{tuple}");
        }
        let open = judge_ufw("DEFAULT_INPUT_POLICY=\"ACCEPT\"", "", 8472);
        assert_eq!(Level::of(&open), Level::Ok);
    }
}
