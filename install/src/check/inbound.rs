//! Firewalls that drop inbound packets by default: whether they accept the VXLAN
//! packets of other nodes, by their configuration.
//!
//! That is what holds when they start, whatever the rules are now. Of firewalld it also says
//! more than its rules, which may leave open whether a packet is accepted. While ufw's rules
//! are in the kernel, those count alone: they may accept the port by a line that `ufw` does
//! not list, as in its `before.rules`.

use std::path::Path;

use tweed_core::problem::{Problem, ProblemKind};
use tweed_core::{limits, regular_file};
use tweed_diagnosis::iptables_legacy;
use tweed_netlink::nf::object::TableKey;
use tweed_netlink::nf::{FAMILY_IPV4, Socket};

use super::{Outcome, ok};
use crate::{displaced::names, places::Places};

/// Symbolic links that systemd creates when firewalld is enabled.
const FIREWALLD: [&str; 2] = [
    "/etc/systemd/system/dbus-org.fedoraproject.FirewallD1.service",
    "/etc/systemd/system/multi-user.target.wants/firewalld.service",
];
const FIREWALLD_CONFIG: &str = "/etc/firewalld/firewalld.conf";
/// Zones that the machine has changed, then zones as they are shipped.
const FIREWALLD_ZONES: [&str; 2] = ["/etc/firewalld/zones", "/usr/lib/firewalld/zones"];
/// The same of services.
const FIREWALLD_SERVICES: [&str; 2] = ["/etc/firewalld/services", "/usr/lib/firewalld/services"];
const UFW_CONFIG: &str = "/etc/ufw/ufw.conf";
const UFW_DEFAULTS: &str = "/etc/default/ufw";
/// A chain of the table `filter` that is there while ufw is.
const UFW_CHAIN: &str = "ufw-user-input";
const UFW_RULES: [&str; 2] = ["/etc/ufw/user.rules", "/etc/ufw/user6.rules"];

/// To be asked where no rule in the kernel is known to drop packets to this port.
pub(super) fn find(places: &Places, port: u16) -> Vec<Outcome> {
    let read = |path: &str| {
        regular_file::read_text(&places.on_host(path), limits::HOST_CONFIG).unwrap_or_default()
    };
    let mut findings = Vec::new();
    if FIREWALLD
        .iter()
        .any(|link| places.on_host(link).is_symlink())
    {
        let config = read(FIREWALLD_CONFIG);
        let default = setting(&config, "DefaultZone").unwrap_or("public");
        let zones = zones(places, default);
        let service = |name: &str| {
            let folders = FIREWALLD_SERVICES.iter();
            let mut files = folders.map(|folder| read(&format!("{folder}/{name}.xml")));
            files.find(|xml| !xml.is_empty()).unwrap_or_default()
        };
        findings.push(judge_firewalld(default, &zones, service, port));
    }
    if setting(&read(UFW_CONFIG), "ENABLED") == Some("yes") && !ufw_runs() {
        let rules: String = UFW_RULES.iter().map(|path| read(path)).collect();
        findings.push(judge_ufw(&read(UFW_DEFAULTS), &rules, port));
    }
    findings
}

/// Whether ufw's rules are in the kernel, by whichever iptables.
fn ufw_runs() -> bool {
    let key = TableKey {
        family: FAMILY_IPV4,
        name: "filter",
    };
    let chain = Socket::open().and_then(|mut socket| key.chain(&mut socket, UFW_CHAIN));
    let old = iptables_legacy::chains(key.name).unwrap_or_default();
    let mut old = old.iter().flat_map(|(_, chains)| chains);
    chain.is_ok_and(|chain| chain.is_some()) || old.any(|chain| chain == UFW_CHAIN)
}

/// A zone of firewalld.
struct Zone {
    name: String,
    xml: String,
}

/// The zones that the machine has changed, and the default zone: which of the others are in
/// use is in no file of firewalld's.
fn zones(places: &Places, default: &str) -> Vec<Zone> {
    let [changed, shipped] = FIREWALLD_ZONES.map(|folder| places.on_host(folder));
    let zone = |folder: &Path, file: &str| {
        let name = file.strip_suffix(".xml")?.to_owned();
        let xml = regular_file::read_text(&folder.join(file), limits::HOST_CONFIG).ok()?;
        Some(Zone { name, xml })
    };
    let names = names(&changed).unwrap_or_default();
    let mut zones: Vec<Zone> = names
        .iter()
        .filter_map(|file| zone(&changed, file))
        .collect();
    if !zones.iter().any(|zone| zone.name == default) {
        zones.extend(zone(&shipped, &format!("{default}.xml")));
    }
    zones
}

/// `service` gives the definition of a service, or nothing.
fn judge_firewalld(
    default: &str,
    zones: &[Zone],
    service: impl Fn(&str) -> String,
    port: u16,
) -> Outcome {
    let lets_in = |zone: &Zone| lets_in(zone, zone.name == default, &service, port);
    if default == "trusted" || zones.iter().any(lets_in) {
        return ok(format!("firewalld lets UDP port {port} in"));
    }
    let message = format!(
        "firewalld is enabled, and none of its zones lets UDP port {port} in: it refuses the \
         packets of other nodes, or will when it starts"
    );
    let problem = Problem::new(ProblemKind::InboundDrop, "firewalld", message);
    Err(problem.with_cure(format!(
        "run `firewall-cmd --permanent --add-port={port}/udp && firewall-cmd --reload` (with \
         --zone=ZONE, if the link to the other nodes is not in the default zone), or put the \
         nodes' network into the zone trusted with --add-source"
    )))
}

/// Whether a zone accepts the port, or everything from some source, or has a rule that may be
/// meant for the nodes. The default zone has the links that are in no other.
fn lets_in(zone: &Zone, is_default: bool, service: &impl Fn(&str) -> String, port: u16) -> bool {
    let tags: Vec<&str> = zone.xml.split('<').collect();
    let is_from_somewhere = |tag: &&str| {
        tag.starts_with("source ")
            || (tag.starts_with("interface ")
                && !attribute(tag, "name").is_some_and(|name| name.starts_with("tw")))
    };
    let target = tags.iter().find(|tag| tag.starts_with("zone"));
    let accepts_all =
        zone.name == "trusted" || target.and_then(|tag| attribute(tag, "target")) == Some("ACCEPT");
    if accepts_all {
        return is_default || tags.iter().any(is_from_somewhere);
    }
    // What stands before a rule is the zone's own, and behind its end again.
    let mut parts = zone.xml.split("<rule");
    let own = parts.next().unwrap_or_default();
    let opens = |text: &str| opens(text, service, port);
    opens(own) == Some(true)
        || parts.any(|part| {
            let (rule, own) = part.split_once("</rule>").unwrap_or((part, ""));
            let accepts = rule.contains("<accept");
            (accepts && opens(rule) != Some(false)) || opens(own) == Some(true)
        })
}

/// Whether the port is among those that the elements of `xml` name; none if they name none.
fn opens(xml: &str, service: &impl Fn(&str) -> String, port: u16) -> Option<bool> {
    let names_port = |tag: &str| {
        let is_udp = attribute(tag, "protocol") == Some("udp");
        is_udp && attribute(tag, "port").is_some_and(|ports| covers(ports, '-', port))
    };
    let one = |tag: &str| match tag.split([' ', '/', '>']).next()? {
        "port" => Some(names_port(tag)),
        "protocol" => Some(attribute(tag, "value") == Some("udp")),
        "service" => {
            let name = attribute(tag, "name").filter(|name| !name.contains('/'))?;
            let definition = service(name);
            let mut tags = definition.split('<').filter(|tag| tag.starts_with("port "));
            Some(tags.any(names_port))
        }
        "icmp-block" | "icmp-type" | "masquerade" | "forward-port" | "source-port" => Some(false),
        _ => None,
    };
    let named: Vec<bool> = xml.split('<').filter_map(one).collect();
    (!named.is_empty()).then(|| named.contains(&true))
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
/// `### tuple ### allow udp 8472 0.0.0.0/0 any 192.0.2.0/24 in comment=6e6f646573`.
fn allows(line: &str, port: u16) -> bool {
    let Some(tuple) = line.strip_prefix("### tuple ### ") else {
        return false;
    };
    let is_comment = |field: &&str| field.starts_with("comment=");
    let mut fields = tuple
        .split_ascii_whitespace()
        .filter(|field| !is_comment(field));
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

    fn firewalld(default: &str, zone: &str, xml: &str) -> Level {
        let zones = [Zone {
            name: zone.to_owned(),
            xml: xml.to_owned(),
        }];
        let service = |name: &str| match name {
            "overlay" => r#"<service><port protocol="udp" port="8472"/></service>"#.to_owned(),
            "ssh" => r#"<service><port protocol="tcp" port="22"/></service>"#.to_owned(),
            _ => String::new(),
        };
        Level::of(&judge_firewalld(default, &zones, service, 8472))
    }

    #[test]
    fn firewalld_takes_what_a_zone_names() {
        let port = |xml: &str| firewalld("public", "public", xml);
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
        assert_eq!(port(r#"<service name="unknown"/>"#), Level::Warning);
        assert_eq!(port(r#"<service name="overlay"/>"#), Level::Ok);
        assert_eq!(port(r#"<protocol value="udp"/>"#), Level::Ok);
        assert_eq!(port(r#"<protocol value="gre"/>"#), Level::Warning);
    }

    #[test]
    fn a_trusted_network_is_taken_and_pods_links_are_no_network() {
        let trusted = |xml: &str| firewalld("public", "trusted", xml);
        let pods = r#"<zone target="ACCEPT"><interface name="tw+"/></zone>"#;
        assert_eq!(trusted(pods), Level::Warning);
        let nodes = r#"<zone target="ACCEPT"><source address="192.0.2.0/24"/></zone>"#;
        assert_eq!(trusted(nodes), Level::Ok);
        assert_eq!(firewalld("trusted", "x", ""), Level::Ok);
    }

    #[test]
    fn firewalld_may_accept_all_in_any_zone_that_is_in_use() {
        let open = r#"<zone target="ACCEPT"><short>Mine</short></zone>"#;
        assert_eq!(firewalld("mine", "mine", open), Level::Ok);
        assert_eq!(firewalld("public", "mine", open), Level::Warning);
        let used = r#"<zone target="ACCEPT"><interface name="eth1"/></zone>"#;
        assert_eq!(firewalld("public", "mine", used), Level::Ok);
        let closed = r#"<zone target="DROP"><interface name="eth1"/></zone>"#;
        assert_eq!(firewalld("public", "mine", closed), Level::Warning);
    }

    #[test]
    fn a_rich_rule_of_firewalld_may_be_meant_for_the_nodes() {
        let rule = |xml: &str| {
            let zone = format!(r#"<zone><service name="ssh"/><rule{xml}</rule></zone>"#);
            firewalld("public", "public", &zone)
        };
        let nodes = r#" family="ipv4"><source address="192.0.2.0/24"/>"#;
        for (rest, level) in [
            ("<accept/>", Level::Ok),
            ("<log prefix=\"x\"/><accept>\n</accept>", Level::Ok),
            ("<drop/>", Level::Warning),
            (r#"<service name="ssh"/><accept/>"#, Level::Warning),
            (r#"<service name="overlay"/><accept/>"#, Level::Ok),
            (r#"<port port="8472" protocol="udp"/><accept/>"#, Level::Ok),
            (
                r#"<port port="8472" protocol="udp"/><reject/>"#,
                Level::Warning,
            ),
            (
                r#"<port port="22" protocol="tcp"/><accept/>"#,
                Level::Warning,
            ),
        ] {
            assert_eq!(rule(&format!("{nodes}{rest}")), level, "{rest}");
        }
        let behind = r#"><drop/></rule><port port="8472" protocol="udp"/><rule><drop/>"#;
        assert_eq!(rule(behind), Level::Ok);
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
            "allow udp 8472 0.0.0.0/0 any 0.0.0.0/0 in comment=6e6f646573",
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
