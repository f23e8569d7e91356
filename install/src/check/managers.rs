//! Programs that manage the machine's links and routes, and may change those of
//! tweed.

mod networkd;

use tweed_core::problem::{Problem, ProblemKind};
use tweed_core::{limits, regular_file};

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

/// Its process IDs where it serves all interfaces, of this version and of older ones. One
/// that was started for some of them has files of other names.
const DHCPCD_RUNNING: [&str; 2] = ["/run/dhcpcd/pid", "/run/dhcpcd.pid"];
const DHCPCD_CONFIG: &str = "/etc/dhcpcd.conf";

pub(super) fn find(places: &Places) -> Vec<Outcome> {
    let network_manager =
        settings(&NETWORK_MANAGER, places).map(|text| judge_network_manager(&text));
    let networkd =
        settings(&NETWORKD, places).map(|text| [judge_networkd(&text), networkd::find(places)]);
    let runs = |path: &&str| places.on_host(path).exists();
    let dhcpcd = DHCPCD_RUNNING.iter().any(runs).then(|| {
        let text = regular_file::read_text(&places.on_host(DHCPCD_CONFIG), limits::HOST_CONFIG);
        judge_dhcpcd(&text.unwrap_or_default())
    });
    let found = network_manager.into_iter();
    let found = found.chain(networkd.into_iter().flatten());
    found.chain(dhcpcd).collect()
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
        .filter_map(|path| regular_file::read_text(path, limits::HOST_CONFIG).ok());
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

/// By dhcpcd.conf(5). Patterns are those of fnmatch(3), of which only those are known that
/// stand for all names that begin in some way.
fn judge_dhcpcd(text: &str) -> Outcome {
    // What stands below such a line is for one interface, network or profile.
    let is_block = |line: &&str| {
        let word = line.split_whitespace().next();
        word.is_some_and(|word| ["interface", "ssid", "profile"].contains(&word))
    };
    let global = || text.lines().take_while(|line| !is_block(line));
    let patterns = |option: &'static str| -> Vec<&str> {
        let lines = global().filter_map(move |line| line.trim().strip_prefix(option));
        let lines = lines.filter(|rest| rest.starts_with(char::is_whitespace));
        let words = lines.flat_map(|rest| rest.split([' ', '\t', ',']));
        words.filter(|word| !word.is_empty()).collect()
    };
    let all = ["*", "t*", "tw*"];
    let denied = patterns("denyinterfaces");
    let allowed = patterns("allowinterfaces");
    let may_allow = |pattern: &&str| all.contains(pattern) || pattern.starts_with("tw");
    let is_left_alone = denied.iter().any(|pattern| all.contains(pattern))
        || (!allowed.is_empty() && !allowed.iter().any(may_allow));
    if is_left_alone {
        return ok("dhcpcd leaves tweed's links alone");
    }
    let message = "dhcpcd runs, and is not told to leave tweed's links alone: it asks for \
                   addresses on the links of pods, and what a pod answers becomes the machine's \
                   address, default route and name server";
    // In the first line, as what follows an interface is for that one alone.
    let cure = "run `sed -i '1i denyinterfaces tw*' /etc/dhcpcd.conf`, and restart dhcpcd";
    Err(Problem::new(ProblemKind::LinkManager, "dhcpcd", message).with_cure(cure))
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
    fn dhcpcd_must_be_told_of_the_links_before_it_is_told_of_one_interface() {
        for (text, level) in [
            ("", Level::Warning),
            ("hostname\n#denyinterfaces tw*\n", Level::Warning),
            ("denyinterfaces veth* docker*\n", Level::Warning),
            ("denyinterfaces veth*,tw*\nhostname\n", Level::Ok),
            ("  denyinterfaces\ttw*\n", Level::Ok),
            ("denyinterfacestw*\n", Level::Warning),
            (
                "interface eth0\nmetric 1\ndenyinterfaces tw*\n",
                Level::Warning,
            ),
            ("denyinterfaces tw*\ninterface eth0\nmetric 1\n", Level::Ok),
            ("allowinterfaces eth0 wlan*\n", Level::Ok),
            ("allowinterfaces eth0 tw*\n", Level::Warning),
            ("allowinterfaces *\ndenyinterfaces tw*\n", Level::Ok),
        ] {
            assert_eq!(Level::of(&judge_dhcpcd(text)), level, "{text:?}");
        }
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
