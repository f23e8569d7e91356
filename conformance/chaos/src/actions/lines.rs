//! Command lines with placeholders for what a node has at the moment.
//!
//! | placeholder | stands for |
//! |---|---|
//! | `{link}`, `{pod4}`, `{pod6}` | the chosen pod's link and addresses |
//! | `{cidr4}`, `{cidr6}`, `{net4}`, `{net6}`, `{address}` | the node's pod CIDRs, their first addresses, its address |
//! | `{far.cidr4}` and so on, `{far.mac}` | those of another node, and its VTEP MAC |

use tweed_lab::LabError;

use crate::plan::NodePlan;
use crate::random::pick;
use crate::world::{Target, World};

/// The lines with all placeholders filled in; none if one of them has no meaning, as for
/// a node without pods.
///
/// # Errors
/// There is no such node.
pub fn filled<T: AsRef<str>>(
    world: &World,
    target: Target,
    lines: &[T],
) -> Result<Vec<String>, LabError> {
    let plan = world.plan();
    let Some(own) = plan.nodes.iter().find(|node| node.index == target.node) else {
        return Ok(Vec::new());
    };
    let others: Vec<&NodePlan> = plan.others(own).collect();
    let mut values = of_node("", own);
    if let Some(far) = others.get(pick(target.number, others.len())) {
        values.extend(of_node("far.", far));
    }
    let attached = target.pod.and_then(|pod| world.pods[pod].attached.as_ref());
    if let Some(attached) = attached {
        values.push(("{link}".to_owned(), attached.link.clone()));
        for address in &attached.addresses {
            let digit = if address.is_ipv4() { 4 } else { 6 };
            values.push((format!("{{pod{digit}}}"), address.to_string()));
        }
    }
    let filled: Vec<String> = lines
        .iter()
        .map(|line| {
            values
                .iter()
                .fold(line.as_ref().to_owned(), |line, (key, value)| {
                    line.replace(key, value)
                })
        })
        .collect();
    // The braces of an nftables element stand alone.
    let is_whole = |line: &String| !line.split(' ').any(|w| w.len() > 1 && w.contains('{'));
    if filled.iter().all(is_whole) {
        Ok(filled)
    } else {
        Ok(Vec::new())
    }
}

fn of_node(prefix: &str, node: &NodePlan) -> Vec<(String, String)> {
    let mut values = vec![
        (format!("{{{prefix}mac}}"), node.vtep_mac()),
        (format!("{{{prefix}address}}"), node.address.to_string()),
    ];
    for cidr in &node.cidrs {
        let digit = if cidr.is_ipv4() { 4 } else { 6 };
        values.push((format!("{{{prefix}cidr{digit}}}"), cidr.to_string()));
        values.push((
            format!("{{{prefix}net{digit}}}"),
            cidr.network().to_string(),
        ));
    }
    values
}
