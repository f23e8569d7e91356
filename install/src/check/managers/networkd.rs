//! What systemd-networkd is told of routes that are not its own, and its `.network` files, as
//! far as they decide whether it manages links of tweed's: by systemd.network(5) the first
//! file, by name, that matches a link is the one that counts for it.

use std::collections::BTreeMap;
use std::iter;
use std::path::{Path, PathBuf};

use tweed_core::problem::{Problem, ProblemKind};
use tweed_core::{limits, regular_file};

use super::{Outcome, matches, ok};
use crate::{displaced::names, places::Places};

/// Files and folders of files. Later ones take precedence.
const CONFIG: [&str; 4] = [
    "/etc/systemd/networkd.conf",
    "/usr/lib/systemd/networkd.conf.d",
    "/run/systemd/networkd.conf.d",
    "/etc/systemd/networkd.conf.d",
];
/// Of two files of one name, that in the later folder counts.
const FOLDERS: [&str; 4] = [
    "/usr/lib/systemd/network",
    "/usr/local/lib/systemd/network",
    "/run/systemd/network",
    "/etc/systemd/network",
];

/// What a file can match a link by. Links that are not hardware have no path and no property
/// of udev that a file asks for, and tweed's have MACs that nobody knows beforehand.
pub(super) struct Link {
    pub(super) name: &'static str,
    /// As `networkctl list` shows it.
    kind: &'static str,
    /// Of the driver, and of the link in rtnetlink.
    driver: &'static str,
}

pub(super) const LINKS: [Link; 2] = [
    Link {
        name: "tweed.1",
        kind: "vxlan",
        driver: "vxlan",
    },
    Link {
        name: "tw0123456789ab",
        kind: "ether",
        driver: "veth",
    },
];

/// A file with what its drop-ins add.
struct NetworkFile {
    path: PathBuf,
    text: String,
}

pub(super) fn find(places: &Places) -> [Outcome; 2] {
    let routes = judge_routes(&super::read(places, &CONFIG));
    [routes, judge(&read(places))]
}

fn judge_routes(text: &str) -> Outcome {
    let last = values(text, "Network", "ManageForeignRoutes").pop();
    if last.is_some_and(|value| NO.contains(&value)) {
        return ok("systemd-networkd leaves tweed's routes alone");
    }
    let message = "systemd-networkd runs, and when it starts again it removes routes that are not \
                   its own from the links that it manages; the agent restores them, but packets \
                   may be lost meanwhile";
    let cure = "run `mkdir -p /etc/systemd/networkd.conf.d && printf '[Network]\\nManageForeignRoutes=no\\n' \
                > /etc/systemd/networkd.conf.d/tweed.conf`; it is read when systemd-networkd starts";
    Err(Problem::new(ProblemKind::LinkManager, "systemd-networkd", message).with_cure(cure))
}

/// All files that count, in the order in which they are tried.
fn read(places: &Places) -> Vec<NetworkFile> {
    let files = effective(places, "", ".network").into_iter();
    let with_drop_ins = |(name, path): (String, PathBuf)| {
        let drop_ins = effective(places, &format!("{name}.d"), ".conf");
        let paths = iter::once(path.clone()).chain(drop_ins.into_values());
        let texts =
            paths.filter_map(|path| regular_file::read_text(&path, limits::HOST_CONFIG).ok());
        let text = texts.collect::<Vec<_>>().join("\n");
        NetworkFile { path, text }
    };
    let is_masked = |path: &Path| {
        regular_file::read(path, limits::HOST_CONFIG).is_ok_and(|bytes| bytes.is_empty())
    };
    files
        .filter(|(_, path)| !is_masked(path))
        .map(with_drop_ins)
        .collect()
}

/// The files below the folders, by their names.
fn effective(places: &Places, below: &str, suffix: &str) -> BTreeMap<String, PathBuf> {
    let mut files = BTreeMap::new();
    for folder in FOLDERS.map(|folder| places.on_host(folder).join(below)) {
        let names = names(&folder).unwrap_or_default().into_iter();
        for name in names.filter(|name| name.ends_with(suffix)) {
            let path = folder.join(&name);
            files.insert(name, path);
        }
    }
    files
}

fn judge(files: &[NetworkFile]) -> Outcome {
    let manages = |link: &Link| {
        let file = files.iter().find(|file| is_about(&file.text, link))?;
        let unmanaged = values(&file.text, "Link", "Unmanaged").pop();
        let is_left_alone = unmanaged.is_some_and(|value| YES.contains(&value));
        (!is_left_alone).then_some(file)
    };
    let Some((file, link)) = LINKS.iter().find_map(|link| Some((manages(link)?, link))) else {
        return ok("no .network file has systemd-networkd manage tweed's links");
    };
    let message = format!(
        "systemd-networkd manages tweed's links, as {}, by {}: it asks for addresses and routers \
         on them (DHCP, IPv6AcceptRA), and what a pod answers can become the node's address and \
         default route",
        link.name,
        file.path.display()
    );
    // The name is before all that begin with a digit other than 0.
    let cure = "run `mkdir -p /etc/systemd/network && printf \
                '[Match]\\nName=tw*\\n[Link]\\nUnmanaged=yes\\n' > \
                /etc/systemd/network/0-tweed.network && networkctl reload`";
    let object = file.path.display().to_string();
    Err(Problem::new(ProblemKind::LinkManager, object, message).with_cure(cure))
}

const YES: [&str; 4] = ["yes", "true", "on", "1"];
const NO: [&str; 4] = ["no", "false", "off", "0"];

/// Whether a file is about a link: all conditions of its section `[Match]` hold. Conditions on
/// the machine (`Host=`, `Virtualization=` and the like) are taken to hold, and a file without
/// conditions is about every link.
fn is_about(text: &str, link: &Link) -> bool {
    [
        ("Name", Some(link.name)),
        ("Type", Some(link.kind)),
        ("Kind", Some(link.driver)),
        ("Driver", Some(link.driver)),
        ("Path", None),
        ("Property", None),
        ("MACAddress", None),
        ("PermanentMACAddress", None),
        ("WLANInterfaceType", None),
        ("SSID", None),
        ("BSSID", None),
    ]
    .into_iter()
    .all(|(key, value)| holds(&values(text, "Match", key), value))
}

/// Whether a condition holds for a value, none of which is like no pattern. Each list may
/// begin with `!`, and then none of its patterns may be like the value.
fn holds(lists: &[&str], value: Option<&str>) -> bool {
    let is_like = |pattern: &str| value.is_some_and(|value| matches(pattern, value));
    let (mut wanted, mut found) = (false, false);
    for list in lists {
        let (unwanted, list) = match list.strip_prefix('!') {
            Some(list) => (true, list),
            None => (false, *list),
        };
        let any = list.split_whitespace().any(is_like);
        if unwanted && any {
            return false;
        }
        wanted |= !unwanted;
        found |= !unwanted && any;
    }
    found || !wanted
}

/// The values of a key of a section. An empty one takes back those before.
fn values<'a>(text: &'a str, section: &str, key: &str) -> Vec<&'a str> {
    let mut values = Vec::new();
    let mut is_in_section = false;
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[') {
            is_in_section = name.strip_suffix(']') == Some(section);
            continue;
        }
        match line.split_once('=') {
            Some((found, value)) if is_in_section && found.trim_end() == key => {
                match value.trim() {
                    "" => values.clear(),
                    value => values.push(value),
                }
            }
            _ => {}
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::super::Level;
    use super::*;

    fn file(name: &str, text: &str) -> NetworkFile {
        NetworkFile {
            path: name.into(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn the_last_word_on_routes_of_others_counts() {
        let level = |text: &str| Level::of(&judge_routes(text));
        assert_eq!(level("[Network]\n#ManageForeignRoutes=no"), Level::Warning);
        assert_eq!(level("[Network]\nManageForeignRoutes=no"), Level::Ok);
        let twice = "[Network]\nManageForeignRoutes=no\nManageForeignRoutes=yes";
        assert_eq!(level(twice), Level::Warning);
    }

    #[test]
    fn a_file_that_matches_tweeds_links_is_named_with_its_conditions() {
        for (text, level) in [
            ("[Match]\nName=tw*", Level::Warning),
            ("[Match]\nName = eth0 tw0*", Level::Warning),
            ("[Match]\nName=tweed.?", Level::Warning),
            ("[Match]\nName=t[a-z][0-9]*", Level::Warning),
            ("[Match]\nName=*", Level::Warning),
            ("[Network]\nDHCP=yes", Level::Warning),
            ("[Match]\nType=ether\n[Network]\nDHCP=yes", Level::Warning),
            ("[Match]\nName=!eth* docker*", Level::Warning),
            ("[Match]\nKind=veth", Level::Warning),
            ("[Match]\nDriver=!virtio*", Level::Warning),
            ("[Match]\nPath=!pci-*", Level::Warning),
            ("[Match]\nName=eth0\nName=tw*", Level::Warning),
            ("[Match]\nName=tw*\n[Link]\nUnmanaged=no", Level::Warning),
            ("[Match]\nHost=alpha\nName=tw*", Level::Warning),
            ("[Match]\nName=en* eth*", Level::Ok),
            ("#[Match]\n[Match]\nName=eth0\n#Name=tw*", Level::Ok),
            ("[Match]\nName=tw*\nType=wlan", Level::Ok),
            ("[Match]\nName=!tw*", Level::Ok),
            ("[Match]\nName=tw*\nName=\nName=eth0", Level::Ok),
            (
                "[Match]\nName=*\nType=!loopback vxlan\nDriver=!veth",
                Level::Ok,
            ),
            ("[Match]\nKind=!*\nType=ether", Level::Ok),
            ("[Match]\nMACAddress=02:00:00:00:00:01", Level::Ok),
            ("[Match]\nPath=*", Level::Ok),
            ("[Match]\nName=t[!w]*", Level::Ok),
            ("[Match]\nName=*\n[Link]\nUnmanaged=yes", Level::Ok),
            ("[Link]\nName=tw*\n[Match]\nName=eth0", Level::Ok),
        ] {
            assert_eq!(Level::of(&judge(&[file("x", text)])), level, "{text:?}");
        }
    }

    #[test]
    fn the_first_file_that_matches_counts_for_each_link() {
        let all = || file("50-all.network", "[Match]\nName=*");
        let alone = |name| {
            let text = format!("[Match]\nName={name}\n[Link]\nUnmanaged=yes");
            file("10-tweed.network", &text)
        };
        assert!(judge(&[alone("tw*"), all()]).is_ok());
        assert!(judge(&[all(), alone("tw*")]).is_err());
        let problem = judge(&[alone("tweed.*"), all()]).unwrap_err();
        assert_eq!(problem.object, "50-all.network");
        assert!(problem.message.contains("as tw0123456789ab"), "{problem}");
        // The cure comes before all.
        assert!(problem.cure.contains("/0-tweed.network"), "{problem}");
        assert!("0-tweed.network" < "00-default.network");
    }

    #[test]
    fn of_one_name_the_file_in_etc_counts_and_an_empty_one_masks_it() {
        let root = tempfile::tempdir().unwrap();
        let places = Places::below(root.path());
        let write = |path: &str, text: &str| {
            let path = places.on_host(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let is_ok = || judge(&read(&places)).is_ok();
        assert!(is_ok());
        write("/usr/lib/systemd/network/80-all.network", "[Match]\nName=*");
        write("/run/systemd/network/80-all.conf", "[Match]\nName=eth0");
        assert!(!is_ok());
        write("/run/systemd/network/80-all.network", "[Match]\nName=eth0");
        assert!(is_ok());
        write("/etc/systemd/network/80-all.network", "[Match]\nName=t*");
        assert!(!is_ok());
        let drop_in = "/run/systemd/network/80-all.network.d/x.conf";
        write(drop_in, "[Link]\nUnmanaged=yes");
        assert!(is_ok());
        write(drop_in, "");
        assert!(!is_ok());
        write("/etc/systemd/network/80-all.network", "");
        assert!(is_ok());
    }
}
