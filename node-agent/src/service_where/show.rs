//! The answer for people.

use std::net::SocketAddr;

use tweed_core::agent_socket::service::{
    Client, Difference, Endpoint, Fate, Frontend, FrontendKind, Kernel, Located, NoServiceFate,
    Path, Port, Service, Use, Where,
};
use tweed_core::agent_socket::why::protocol_name;

use crate::question::line;

/// The whole answer, each line with its end.
pub(super) fn text(asked: &Where, located: &Located) -> String {
    let mut text = String::new();
    let (to, node) = (&asked.to, &located.node);
    let from = match asked.from {
        Some(Client::Address(address)) => format!(" from {address}"),
        _ => String::new(),
    };
    line(
        &mut text,
        0,
        &format!("{to}{from}, as node {node} knows it"),
    );
    if let Some(service) = &located.service {
        line(&mut text, 0, &facts(service));
    }
    if let Some(none) = &located.none {
        let fate = match none.fate {
            NoServiceFate::Rejected => "REJECTED",
            NoServiceFate::Dropped => "DROPPED",
            NoServiceFate::Untouched => "left as it is, nothing of Services",
        };
        line(&mut text, 0, &format!("{fate}: {}", none.reason));
    }
    for port in &located.ports {
        show_port(&mut text, port);
    }
    more(&mut text, 0, located.more_ports, "ports");
    if let Some(kernel) = &located.kernel {
        show_kernel(&mut text, kernel);
    }
    for hint in &located.hints {
        line(&mut text, 0, &format!("note: {hint}"));
    }
    text
}

fn facts(service: &Service) -> String {
    let policy = |is_local| if is_local { "Local" } else { "Cluster" };
    let internal = policy(service.internal_local);
    let external = match service.kind.as_str() {
        "ClusterIP" if !service.external_local => String::new(),
        _ => format!(", externalTrafficPolicy {}", policy(service.external_local)),
    };
    let affinity = match service.affinity_seconds {
        Some(seconds) => format!("affinity by client address for {seconds} s"),
        None => "no session affinity".to_owned(),
    };
    let check = match service.health_check_node_port {
        Some(port) => format!(", health checks at port {port}"),
        None => String::new(),
    };
    let Service {
        namespace,
        name,
        kind,
        ..
    } = service;
    format!(
        "Service {namespace}/{name}, {kind}; internalTrafficPolicy {internal}{external}; {affinity}{check}"
    )
}

fn show_port(text: &mut String, port: &Port) {
    let family = if port.ipv6 { "IPv6" } else { "IPv4" };
    let name = match port.name.as_str() {
        "" => String::new(),
        name => format!(" \"{name}\""),
    };
    let protocol = protocol_name(port.protocol);
    let number = port.port;
    line(
        text,
        0,
        &format!("port{name} {number}/{protocol}, {family}"),
    );
    for frontend in &port.frontends {
        show_frontend(text, frontend);
    }
    more(text, 1, port.more_frontends, "frontends");
    line(text, 1, &counts(port));
    for endpoint in &port.endpoints {
        line(text, 2, &show_endpoint(endpoint));
    }
    let unlisted = match port.endpoints.len() {
        0..=16 => "endpoints; --all lists them",
        _ => "endpoints",
    };
    more(text, 2, port.more_endpoints, unlisted);
}

fn show_frontend(text: &mut String, frontend: &Frontend) {
    let kind = match frontend.kind {
        FrontendKind::ClusterIp => "cluster IP",
        FrontendKind::LoadBalancer => "load balancer's address",
        FrontendKind::ExternalIp => "external IP",
        FrontendKind::NodePort => "node port",
    };
    let at = match frontend.address {
        Some(address) => SocketAddr::new(address, frontend.port).to_string(),
        None => frontend.port.to_string(),
    };
    let taken = match &frontend.taken_by {
        Some(service) => format!(", which Service {service} has: it goes where that one says"),
        None => String::new(),
    };
    line(text, 1, &format!("{kind} {at}{taken}"));
    if let Some(ranges) = &frontend.source_ranges {
        let more = match ranges.more {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let node = match ranges.node {
            true => "this node is among them",
            false => "this node is not among them",
        };
        let listed = match ranges.ranges.is_empty() {
            true => "nobody".to_owned(),
            false => ranges.ranges.join(", "),
        };
        line(
            text,
            2,
            &format!("only for the sources {listed}{more}; {node}"),
        );
    }
    for path in &frontend.paths {
        line(text, 2, &show_path(path));
    }
}

fn show_path(path: &Path) -> String {
    let fate = match path.fate {
        Fate::Rejected => "REJECTED, there is no usable endpoint anywhere".to_owned(),
        Fate::NoLocalEndpoint => {
            "DROPPED, the traffic policy is Local and all endpoints are on other nodes".to_owned()
        }
        Fate::SourceNotAllowed => "DROPPED, loadBalancerSourceRanges leaves it out".to_owned(),
        Fate::Sent => {
            let whose = if path.local_only { " of this node" } else { "" };
            let group = path.group.map(|group| format!(" (group {group:#x})"));
            let exceptions = match (path.hairpin, path.to_other_nodes) {
                (false, false) => "",
                (true, false) => ", but for a connection to itself",
                (false, true) => ", but for connections to endpoints of other nodes",
                (true, true) => ", but for connections to itself and to endpoints of other nodes",
            };
            let masqueraded = match path.masqueraded {
                true => "masqueraded".to_owned(),
                false => format!("keeps its address{exceptions}"),
            };
            format!(
                "one of {} endpoints{whose}{}, {masqueraded}",
                path.endpoints,
                group.unwrap_or_default()
            )
        }
    };
    let from = match path.from {
        Client::Pod => "pods".to_owned(),
        Client::Node => "this node".to_owned(),
        Client::Outside => "outside".to_owned(),
        Client::Address(address) => address.to_string(),
    };
    format!("from {from}: {fate}")
}

fn counts(port: &Port) -> String {
    let counts = &port.counts;
    let mut text = format!("endpoints: {}", counts.known);
    let (cluster, local) = (counts.cluster, counts.local);
    match (cluster, local) {
        (Some(used), None) | (None, Some(used)) => text += &format!(", {used} used"),
        (Some(cluster), Some(local)) => {
            text += &format!(", {cluster} used by the policy Cluster, {local} by Local");
        }
        (None, None) => {}
    }
    match counts.other_family {
        0 => {}
        other => text += &format!("; {other} of the other family"),
    }
    text
}

fn show_endpoint(endpoint: &Endpoint) -> String {
    let place = match (&endpoint.node, endpoint.here) {
        (_, true) => "on this node".to_owned(),
        (Some(node), false) => format!("on node {node}"),
        (None, false) => "elsewhere".to_owned(),
    };
    let state = match (endpoint.ready, endpoint.serving, endpoint.terminating) {
        (true, _, false) => "ready",
        (true, _, true) => "ready, terminating",
        (false, true, true) => "serving, terminating",
        (false, false, true) => "terminating",
        (false, true, false) => "serving, not ready",
        (false, false, false) => "not ready",
    };
    let zones = match endpoint.zones.is_empty() {
        true => String::new(),
        false => format!(", for zones {}", endpoint.zones.join(" ")),
    };
    let used = match (endpoint.cluster, endpoint.local) {
        (Some(one), None) | (None, Some(one)) => meaning(one).to_owned(),
        (Some(one), Some(other)) if one == other => meaning(one).to_owned(),
        (Some(cluster), Some(local)) => {
            format!("Cluster: {}; Local: {}", meaning(cluster), meaning(local))
        }
        (None, None) => "no frontend leads to it".to_owned(),
    };
    format!("{} {place}, {state}{zones}: {used}", endpoint.at)
}

fn meaning(used: Use) -> &'static str {
    match used {
        Use::Used => "used",
        Use::NotReady => "NOT used, it is not ready",
        Use::Ending => "NOT used, it is about to end and others are ready",
        Use::NotLocal => "NOT used, it is on another node",
        Use::OtherNode => "NOT used, hints give it to other nodes",
        Use::OtherZone => "NOT used, hints give it to other zones",
        Use::BeyondMaximum => "NOT used, there are more than the rules can use",
    }
}

fn show_kernel(text: &mut String, kernel: &Kernel) {
    let unread = match kernel.unread {
        0 => String::new(),
        unread => format!(", {unread} more not read"),
    };
    let read = format!("{} elements read{unread}", kernel.read);
    if kernel.differences.is_empty() {
        return line(text, 0, &format!("the kernel: as planned, {read}"));
    }
    line(text, 0, &format!("the kernel: NOT as planned, {read}"));
    for Difference {
        set,
        key,
        planned,
        held,
    } in &kernel.differences
    {
        let or_none = |value: &Option<String>| value.clone().unwrap_or("nothing".to_owned());
        let (planned, held) = (or_none(planned), or_none(held));
        line(
            text,
            1,
            &format!("{set} {{ {key} }}: {held}, planned {planned}"),
        );
    }
    more(text, 1, kernel.more_differences, "differences");
}

fn more(text: &mut String, indent: usize, count: usize, what: &str) {
    if count > 0 {
        line(text, indent, &format!("and {count} more {what}"));
    }
}

#[cfg(test)]
mod tests;
