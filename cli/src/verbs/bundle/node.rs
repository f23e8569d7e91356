//! What a node adds to a bundle: what agent and kernel say, of tweed's objects alone.

use std::fmt::Debug;
use std::process::Command;

use tweed_component::message::{Answer, Request};
use tweed_core::agent_state::AGENT_STATE_FILE;
use tweed_core::{limits, regular_file};
use tweed_netlink::{Socket, address, fdb, link, neighbour, owned, route};

use super::Report;
use crate::node::{Node, unexpected};
use crate::verbs::doctor::check_program;
use crate::verbs::status;

/// Maximum length of one file, in bytes: an agent's policies may be large.
const MAX_FILE: usize = 4 * 1024 * 1024;

/// Collects all, each for itself.
pub(super) fn collect(node: &Node) -> Report {
    let mut report = Report::default();
    let mut add = |name: &str, content: Result<String, String>| match content {
        Ok(text) => report.files.insert(name.to_owned(), bounded(text)),
        Err(why) => report.errors.insert(name.to_owned(), why),
    };
    let path = node.run_dir.join(AGENT_STATE_FILE);
    let state = regular_file::read_text(&path, limits::LOCK);
    add(
        AGENT_STATE_FILE,
        state.map_err(|error| format!("{}: {error}", path.display())),
    );
    let status = status::Report::of(node).map_err(|why| why.to_string());
    let json = |report| serde_json::to_string_pretty(&report).map_err(|error| error.to_string());
    add("status.json", status.and_then(json));
    let peers = match node.ask(&Request::Peers {}) {
        Ok(Answer::Peers(peers)) => lines(&peers),
        Ok(_) => format!("{}\n", unexpected()),
        // Without probes nothing is missing.
        Err(why) => format!("{why}\n"),
    };
    add("peers.txt", Ok(peers));
    let metrics = match node.ask(&Request::Metrics {}) {
        Ok(Answer::Metrics(text)) => Ok(text),
        Ok(_) => Err(unexpected().to_string()),
        Err(why) => Err(why.to_string()),
    };
    add("metrics.txt", metrics);
    // It ends with 1 where it has found something.
    let run_dir = node.run_dir.as_os_str();
    let program = check_program();
    let check = Command::new(&program)
        .args(["check", "--output", "json", "--run-dir"])
        .arg(run_dir)
        .output();
    add("check.json", printed(check, "tweed-install"));
    for table in owned::TABLES.map(|table| table.name) {
        add(&format!("nft-{table}.txt"), listed(table));
    }
    match Socket::open().and_then(|mut socket| kernel_objects(&mut socket)) {
        Ok(lists) => {
            for (name, text) in lists {
                add(name, Ok(text));
            }
        }
        Err(error) => add("kernel.txt", Err(error.to_string())).map_or((), drop),
    }
    report
}

/// What a program has printed; its complaint if that is nothing.
fn printed(ran: std::io::Result<std::process::Output>, program: &str) -> Result<String, String> {
    let output = ran.map_err(|error| format!("{program}: {error}"))?;
    if output.stdout.is_empty() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{program}: {}", complaint.trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// One of tweed's tables, as `nft` lists it. There need not be those of policies and Services.
fn listed(table: &str) -> Result<String, String> {
    let nft = std::env::var_os("TWEED_NFT").unwrap_or_else(|| "nft".into());
    let words = ["--numeric", "list", "table", "inet", table];
    match printed(Command::new(&nft).args(words).output(), "nft") {
        Err(why) if why.contains("No such file or directory\nlist table") => {
            Ok(format!("there is no table inet {table}\n"))
        }
        listed => listed,
    }
}

/// Links, addresses, neighbours, FDB entries and routes of tweed.
fn kernel_objects(
    socket: &mut Socket,
) -> Result<[(&'static str, String); 5], tweed_netlink::Error> {
    let all: Vec<link::Link> = link::list(socket)?;
    let is_ours = |link: &&link::Link| owned::is_device(link) || owned::is_any_pod_link(link);
    let links: Vec<&link::Link> = all.iter().filter(is_ours).collect();
    let is_of_ours = |index: u32| links.iter().any(|link| link.index == index);
    let mut addresses = address::list(socket)?;
    addresses.retain(|address| is_of_ours(address.index));
    let mut neighbours = neighbour::list_all(socket)?;
    neighbours.retain(|neighbour| is_of_ours(neighbour.index));
    let mut entries = Vec::new();
    for device in links.iter().filter(|link| owned::is_device(link)) {
        entries.extend(fdb::list(socket, device.index)?);
    }
    let mut routes = route::list(socket, None)?;
    routes.retain(owned::is_route);
    Ok([
        ("links.txt", lines(&links)),
        ("addresses.txt", lines(&addresses)),
        ("neighbours.txt", lines(&neighbours)),
        ("fdb.txt", lines(&entries)),
        ("routes.txt", lines(&routes)),
    ])
}

fn lines(objects: &[impl Debug]) -> String {
    objects
        .iter()
        .map(|object| format!("{object:?}\n"))
        .collect()
}

/// The beginning of a text that is too long.
fn bounded(mut text: String) -> String {
    if text.len() > MAX_FILE {
        let end = text.floor_char_boundary(MAX_FILE);
        let rest = text.len() - end;
        text.truncate(end);
        text += &format!("\n… and {rest} bytes more, which are left out\n");
    }
    text
}
