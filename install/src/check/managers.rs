//! Programs that manage the machine's links and routes, and may change those of
//! tweed.

use std::fs;

use tweed_core::problem::{Problem, ProblemKind};

use super::{Outcome, ok};
use crate::{displaced::names, places::Places};

/// A program: a path that exists while it runs, and its configuration: files, and folders of
/// files. Later ones take precedence.
struct Manager {
    running: &'static str,
    sources: [&'static str; 4],
}

const NETWORK_MANAGER: Manager = Manager {
    running: "/run/NetworkManager",
    sources: [
        "/usr/lib/NetworkManager/conf.d",
        "/run/NetworkManager/conf.d",
        "/etc/NetworkManager/NetworkManager.conf",
        "/etc/NetworkManager/conf.d",
    ],
};

const NETWORKD: Manager = Manager {
    running: "/run/systemd/netif",
    sources: [
        "/etc/systemd/networkd.conf",
        "/usr/lib/systemd/networkd.conf.d",
        "/run/systemd/networkd.conf.d",
        "/etc/systemd/networkd.conf.d",
    ],
};

pub(super) fn find(places: &Places) -> Vec<Outcome> {
    let network_manager =
        settings(&NETWORK_MANAGER, places).map(|text| judge_network_manager(&text));
    let networkd = settings(&NETWORKD, places).map(|text| judge_networkd(&text));
    network_manager.into_iter().chain(networkd).collect()
}

/// Its whole configuration; `None` if it does not run.
fn settings(manager: &Manager, places: &Places) -> Option<String> {
    if !places.on_host(manager.running).exists() {
        return None;
    }
    let mut files = Vec::new();
    for source in manager.sources.map(|source| places.on_host(source)) {
        if !source.is_dir() {
            files.push(source);
            continue;
        }
        let names = names(&source).unwrap_or_default();
        let configs = names.iter().filter(|name| name.ends_with(".conf"));
        files.extend(configs.map(|name| source.join(name)));
    }
    let texts = files
        .iter()
        .filter_map(|path| fs::read_to_string(path).ok());
    Some(texts.collect::<Vec<_>>().join("\n"))
}

/// The values of a key in their order: `key = value`, with any blanks. With each, whether it
/// is added to those before (`key += value`).
fn values<'a>(text: &'a str, key: &'a str) -> impl Iterator<Item = (bool, &'a str)> {
    text.lines().filter_map(move |line| {
        let (found, value) = line.split_once('=')?;
        let found = found.trim();
        let is_added = found.ends_with('+');
        let found = found.trim_end_matches('+').trim_end();
        let is_key = found.eq_ignore_ascii_case(key);
        is_key.then_some((is_added, value.trim()))
    })
}

fn judge_network_manager(text: &str) -> Outcome {
    let is_told = values(text, "unmanaged-devices").fold(false, |told, (is_added, devices)| {
        (told && is_added) || devices.contains("interface-name:tw*")
    });
    if is_told {
        return ok("NetworkManager leaves tweed's links alone");
    }
    let message = "NetworkManager runs, and is not told to leave tweed's links alone";
    // Without `+` it would be managing what the files before name.
    let cure = "run `printf '[keyfile]\\nunmanaged-devices+=interface-name:tw*\\n' > \
                /etc/NetworkManager/conf.d/tweed.conf && nmcli general reload`";
    Err(Problem::new(ProblemKind::LinkManager, "NetworkManager", message).with_cure(cure))
}

fn judge_networkd(text: &str) -> Outcome {
    let no = |value: &str| ["no", "false", "off", "0"].contains(&value);
    let last = values(text, "ManageForeignRoutes").last();
    if last.is_some_and(|(_, value)| no(value)) {
        return ok("systemd-networkd leaves tweed's routes alone");
    }
    let message = "systemd-networkd runs, and when it starts again it removes routes that are not \
                   its own from the links that it manages; the agent restores them, but packets \
                   may be lost meanwhile";
    let cure = "run `mkdir -p /etc/systemd/networkd.conf.d && printf '[Network]\\nManageForeignRoutes=no\\n' \
                > /etc/systemd/networkd.conf.d/tweed.conf`; it is read when systemd-networkd starts";
    Err(Problem::new(ProblemKind::LinkManager, "systemd-networkd", message).with_cure(cure))
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn network_manager_must_be_told_of_the_links() {
        let level = |text: &str| Level::of(&judge_network_manager(text));
        assert_eq!(level(""), Level::Warning);
        assert_eq!(
            level("#unmanaged-devices=interface-name:tw*"),
            Level::Warning
        );
        assert_eq!(
            level("unmanaged-devices=interface-name:cali*"),
            Level::Warning
        );
        let both = "[keyfile]\nunmanaged-devices = interface-name:cali*;interface-name:tw*";
        assert_eq!(level(both), Level::Ok);
        assert_eq!(level("unmanaged-devices+=interface-name:tw*"), Level::Ok);
        // A later file may take it back, or add to it.
        let then = |later: &str| level(&format!("{both}\n{later}"));
        assert_eq!(
            then("unmanaged-devices=interface-name:docker0"),
            Level::Warning
        );
        assert_eq!(then("unmanaged-devices+=interface-name:docker0"), Level::Ok);
    }

    /// The file of the cure comes behind those of other programs.
    #[test]
    fn the_cure_leaves_to_network_manager_what_others_have_told_it() {
        let cure = judge_network_manager("").unwrap_err().cure;
        assert!(
            cure.contains("unmanaged-devices+=interface-name:tw*"),
            "{cure}"
        );
    }

    #[test]
    fn the_last_word_to_networkd_counts() {
        let level = |text: &str| Level::of(&judge_networkd(text));
        assert_eq!(level("[Network]\n#ManageForeignRoutes=no"), Level::Warning);
        assert_eq!(level("ManageForeignRoutes=no"), Level::Ok);
        let twice = "ManageForeignRoutes=no\nManageForeignRoutes=yes";
        assert_eq!(level(twice), Level::Warning);
    }
}
