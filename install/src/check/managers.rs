//! Programs that manage the machine's links and routes while they run, and may change those
//! of tweed. Of one that does not run nothing is looked at.

mod networkd;

use std::path::Path;
use std::{ffi::CString, fs};

use nix::libc;
use tweed_core::ownership::LINK_PREFIX;
use tweed_core::problem::{Problem, ProblemKind};
use tweed_core::{limits, regular_file};

use super::{Outcome, ok};
use crate::{displaced::names, places::Places};

/// Names of processes, as the kernel has them: 15 bytes at most.
const NETWORK_MANAGER: &str = "NetworkManager";
const NETWORKD: &str = "systemd-network";
const DHCPCD: &str = "dhcpcd";

/// Its process IDs where it serves all interfaces, of this version and of older ones. One
/// that was started for some of them has files of other names.
const DHCPCD_OF_ALL: [&str; 2] = ["/run/dhcpcd/pid", "/run/dhcpcd.pid"];
const DHCPCD_CONFIG: &str = "/etc/dhcpcd.conf";

/// Files, and folders of files. Later ones take precedence.
const NETWORK_MANAGER_CONFIG: [&str; 4] = [
    "/usr/lib/NetworkManager/conf.d",
    "/run/NetworkManager/conf.d",
    "/etc/NetworkManager/NetworkManager.conf",
    "/etc/NetworkManager/conf.d",
];

pub(super) fn find(places: &Places) -> Vec<Outcome> {
    let mut found = Vec::new();
    if runs(places, NETWORK_MANAGER) {
        let config = read(places, &NETWORK_MANAGER_CONFIG);
        found.push(judge_network_manager(&config));
    }
    if runs(places, NETWORKD) {
        found.extend(networkd::find(places));
    }
    let of_all = DHCPCD_OF_ALL.map(|path| places.on_host(path));
    let mut pids = of_all
        .iter()
        .filter_map(|path| regular_file::read_text(path, limits::HOST_CONFIG).ok());
    if pids.any(|pid| is_process(places, pid.trim(), DHCPCD)) {
        found.push(judge_dhcpcd(&read(places, &[DHCPCD_CONFIG])));
    }
    found
}

/// Whether a process of this name manages the links that are looked at.
fn runs(places: &Places, name: &str) -> bool {
    let processes = names(&places.on_host("/proc")).unwrap_or_default();
    processes.iter().any(|pid| is_process(places, pid, name))
}

/// Whether a process has this name, and its network namespace is not known to be another one:
/// that of a container has other links.
fn is_process(places: &Places, pid: &str, name: &str) -> bool {
    if pid.is_empty() || !pid.bytes().all(|byte| byte.is_ascii_digit()) {
        return false;
    }
    let process = places.on_host("/proc").join(pid);
    let found = regular_file::read_text(&process.join("comm"), limits::HOST_CONFIG);
    let namespace = |process: &Path| fs::read_link(process.join("ns/net")).ok();
    let own = namespace(Path::new("/proc/self"));
    found.is_ok_and(|found| found.trim_end() == name)
        && namespace(&process).is_none_or(|of_process| Some(of_process) == own)
}

/// The text of all these files, one behind the other.
fn read(places: &Places, sources: &[&str]) -> String {
    let mut files = Vec::new();
    for source in sources.iter().map(|source| places.on_host(source)) {
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
    texts.collect::<Vec<_>>().join("\n")
}

/// Whether `name` matches a pattern as managers write them, by fnmatch(3).
fn matches(pattern: &str, name: &str) -> bool {
    let (Ok(pattern), Ok(name)) = (CString::new(pattern), CString::new(name)) else {
        return false;
    };
    #[expect(unsafe_code, reason = "nix has no such call")]
    // SAFETY: both are strings that end with a zero byte and outlive the call.
    let answer = unsafe { libc::fnmatch(pattern.as_ptr(), name.as_ptr(), 0) };
    answer == 0
}

fn judge_network_manager(text: &str) -> Outcome {
    let mut is_told = false;
    for (key, value) in text.lines().filter_map(|line| line.split_once('=')) {
        let key = key.trim().to_ascii_lowercase();
        match key.strip_prefix("unmanaged-devices") {
            // Added to those before, or in their place.
            Some("+") => is_told |= names_links(value),
            Some("") => is_told = names_links(value),
            _ => {}
        }
    }
    if is_told {
        return ok("NetworkManager leaves tweed's links alone");
    }
    let message = "NetworkManager runs, and is not told to leave tweed's links alone";
    // Without `+` it would be managing what the files before name.
    let cure = "run `printf '[keyfile]\\nunmanaged-devices+=interface-name:tw*\\n' > \
                /etc/NetworkManager/conf.d/tweed.conf && nmcli general reload`";
    Err(Problem::new(ProblemKind::LinkManager, "NetworkManager", message).with_cure(cure))
}

fn names_links(devices: &str) -> bool {
    devices.contains("interface-name:tw*")
}

/// By dhcpcd.conf(5).
fn judge_dhcpcd(text: &str) -> Outcome {
    // What stands below such a line is for one interface, network or profile.
    let is_block = |line: &&str| {
        let word = line.split_whitespace().next();
        word.is_some_and(|word| ["interface", "ssid", "profile"].contains(&word))
    };
    let global = || text.lines().take_while(|line| !is_block(line));
    let patterns = |option: &'static str| -> Vec<&str> {
        let rests = global().filter_map(move |line| line.trim().strip_prefix(option));
        let values = rests.filter(|rest| rest.starts_with(char::is_whitespace));
        let words = values.flat_map(|rest| rest.split([' ', '\t', ',']));
        words.filter(|word| !word.is_empty()).collect()
    };
    let allowed = patterns("allowinterfaces");
    let denied = patterns("denyinterfaces");
    let is_left_alone = |link: &networkd::Link| {
        let is_link = |pattern: &&str| matches(pattern, link.name);
        // Perhaps another pod's link.
        let may_be = |pattern: &&str| is_link(pattern) || pattern.starts_with(LINK_PREFIX);
        denied.iter().any(is_link) || (!allowed.is_empty() && !allowed.iter().any(may_be))
    };
    if networkd::LINKS.iter().all(is_left_alone) {
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
    fn a_manager_runs_if_a_process_of_this_network_namespace_has_its_name() {
        let root = tempfile::tempdir().unwrap();
        let places = Places::below(root.path());
        let process = |pid: &str| places.on_host("/proc").join(pid);
        let comm = |pid: &str, name: &str| {
            fs::create_dir_all(process(pid).join("ns")).unwrap();
            fs::write(process(pid).join("comm"), format!("{name}\n")).unwrap();
        };
        let is_found = || runs(&places, NETWORKD);
        assert!(!is_found());
        comm("1", "systemd");
        comm("net", NETWORKD);
        assert!(!is_found());
        comm("77", NETWORKD);
        assert!(is_found());
        // That of a container.
        let namespace = process("77").join("ns/net");
        std::os::unix::fs::symlink("net:[1]", &namespace).unwrap();
        assert!(!is_found());
        fs::remove_file(&namespace).unwrap();
        let own = fs::read_link("/proc/self/ns/net").unwrap();
        std::os::unix::fs::symlink(own, &namespace).unwrap();
        assert!(is_found());
    }
}
