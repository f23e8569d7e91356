//! All network objects in a namespace, to compare before and after.
//!
//! They are read by other programs than the code under test: `ip -j`, `bridge -j`,
//! `nft -j`, and from `/proc/sys`. Values that change by themselves (counters,
//! timers, learned neighbours) are left out. Values that show a replaced object
//! (indexes, nft handles) are included, unless [`Snapshot::without_identity`] takes them out.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::error::LabError;
use crate::netns::Netns;
use crate::run::poll;

/// Keys of `ip -j` and `bridge -j` that change by themselves.
const VOLATILE: &[&str] = &[
    "expires",
    "gc_timer",
    "hello_timer",
    "operstate",
    "preferred_life_time",
    "tcn_timer",
    "topology_change_timer",
    "valid_life_time",
];

/// Keys with numbers that the kernel assigns anew when an object is made again.
const IDENTITY: &[&str] = &["ifindex", "link_index", "handle", "index"];

/// Time between two looks that have to be the same: some times what the kernel takes on a
/// busy machine to bring up a link and its routes.
const SETTLED_FOR: Duration = Duration::from_millis(300);

/// Maximum time until a namespace does not change by itself any more.
const SETTLED_LIMIT: Duration = Duration::from_secs(30);

/// The state of one namespace: a line per object, each starting with its kind:
/// `link`, `address`, `route`, `rule`, `neighbour`, `fdb`, `nft`, `sysctl`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    objects: BTreeSet<String>,
}

impl Snapshot {
    /// Reads a namespace.
    ///
    /// # Errors
    /// One of the programs fails.
    pub fn of(netns: &Netns) -> Result<Self, LabError> {
        let mut objects = BTreeSet::new();
        for (kind, line) in [
            ("link", "ip -j -d link show"),
            ("route", "ip -j -4 route show table all"),
            ("route", "ip -j -6 route show table all"),
            ("rule", "ip -j -4 rule show"),
            ("rule", "ip -j -6 rule show"),
            // The kernel learns the other ones from packets at any time.
            ("neighbour", "ip -j neigh show nud permanent"),
            ("fdb", "bridge -j fdb show"),
        ] {
            for mut object in array(netns.json(line)?) {
                strip(&mut object, VOLATILE);
                objects.insert(format!("{kind} {object}"));
            }
        }
        for mut link in array(netns.json("ip -j addr show")?) {
            let name = link["ifname"].clone();
            for mut address in array(link["addr_info"].take()) {
                strip(&mut address, VOLATILE);
                objects.insert(format!("address {name} {address}"));
            }
        }
        for mut object in array(netns.json("nft -j list ruleset")?["nftables"].take()) {
            if object.get("metainfo").is_none() {
                strip(&mut object, &["packets", "bytes"]);
                objects.insert(format!("nft {object}"));
            }
        }
        let sysctls = netns.enter(|| {
            let mut found = Vec::new();
            for family in ["ipv4", "ipv6"] {
                let root = Path::new("/proc/sys/net").join(family);
                collect_sysctls(&root.join("conf"), &mut found);
            }
            collect_sysctl(Path::new("/proc/sys/net/ipv4/ip_forward"), &mut found);
            found
        })?;
        objects.extend(sysctls);
        Ok(Self { objects })
    }

    /// Reads a namespace once it does not change by itself any more. After `ip link set up`
    /// has returned, works of the kernel change flags, addresses and routes, and it makes
    /// the routes of an address only when it is sure that nobody else has it.
    ///
    /// # Errors
    /// As [`Snapshot::of`]; [`LabError::TimedOut`] with what still changes.
    pub fn settled(netns: &Netns) -> Result<Self, LabError> {
        let what = format!("{} not to change by itself any more", netns.name());
        let mut last = Self::of(netns)?;
        std::thread::sleep(SETTLED_FOR);
        poll(&what, SETTLED_LIMIT, SETTLED_FOR, || {
            let now = Self::of(netns).map_err(|error| error.chain())?;
            let is_tentative = |line: &&str| line.contains("\"tentative\":true");
            let tentative = now.of_kind("address").filter(is_tentative);
            let mut unsettled = last.changes(&now);
            unsettled.extend(tentative.map(|address| format!("address {address}")));
            last = now;
            if unsettled.is_empty() {
                Ok(last.clone())
            } else {
                Err(unsettled.join("\n"))
            }
        })
    }

    /// The same without the numbers that the kernel assigns: an object that was deleted and
    /// made again is the same object.
    #[must_use]
    pub fn without_identity(self) -> Self {
        self.with(|line| without_numbers(line, IDENTITY))
    }

    /// The same with another line in place of each one.
    #[must_use]
    pub fn with(self, other: impl Fn(&str) -> String) -> Self {
        let objects = self.objects.iter().map(|line| other(line)).collect();
        Self { objects }
    }

    /// The same without the objects whose line `unwanted` picks.
    #[must_use]
    pub fn without(mut self, unwanted: impl Fn(&str) -> bool) -> Self {
        self.objects.retain(|object| !unwanted(object));
        self
    }

    /// The lines of one kind.
    pub fn of_kind(&self, kind: &str) -> impl Iterator<Item = &str> {
        self.objects
            .iter()
            .filter_map(move |object| object.strip_prefix(kind)?.strip_prefix(' '))
    }

    /// The differences to `later`: removed lines start with `-`, added ones with
    /// `+`.
    #[must_use]
    pub fn changes(&self, later: &Self) -> Vec<String> {
        let removed = self.objects.difference(&later.objects);
        let added = later.objects.difference(&self.objects);
        removed
            .map(|line| format!("- {line}"))
            .chain(added.map(|line| format!("+ {line}")))
            .collect()
    }
}

impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.objects
            .iter()
            .try_for_each(|line| writeln!(f, "{line}"))
    }
}

fn array(value: Value) -> Vec<Value> {
    match value {
        Value::Array(items) => items,
        _ => Vec::new(),
    }
}

fn strip(value: &mut Value, keys: &[&str]) {
    match value {
        Value::Object(fields) => {
            fields.retain(|key, _| !keys.contains(&key.as_str()));
            fields.values_mut().for_each(|field| strip(field, keys));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| strip(item, keys)),
        _ => {}
    }
}

/// A line of JSON without the digits that stand after these keys.
fn without_numbers(line: &str, keys: &[&str]) -> String {
    let mut line = line.to_owned();
    for key in keys {
        let key = format!("\"{key}\":");
        while let Some(start) = line.find(&key) {
            let rest = &line[start + key.len()..];
            let digits = rest
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(rest.len());
            line.replace_range(start..start + key.len() + digits, "");
        }
    }
    line
}

fn collect_sysctls(folder: &Path, found: &mut Vec<String>) {
    // A link that is deleted while its folder is read is not in the snapshot.
    for link in fs::read_dir(folder).into_iter().flatten().flatten() {
        for key in fs::read_dir(link.path()).into_iter().flatten().flatten() {
            collect_sysctl(&key.path(), found);
        }
    }
}

fn collect_sysctl(path: &Path, found: &mut Vec<String>) {
    // `stable_secret` cannot be read before it is set.
    if let Ok(value) = fs::read_to_string(path) {
        let key = path.strip_prefix("/proc/sys/net").unwrap_or(path);
        found.push(format!("sysctl {} = {}", key.display(), value.trim()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_that_is_made_again_is_the_same_without_its_numbers() {
        let line = |index, mtu| format!(r#"link {{"ifindex":{index},"mtu":{mtu}}}"#);
        let of = |lines: &[String]| Snapshot {
            objects: lines.iter().cloned().collect(),
        };
        let before = of(&[line(7, 1450)]);
        let again = of(&[line(12, 1450)]);
        assert_eq!(before.changes(&again).len(), 2);
        let without = before.without_identity();
        assert!(without.changes(&again.without_identity()).is_empty());
        let other = of(&[line(7, 1280)]).without_identity();
        assert_eq!(without.changes(&other).len(), 2);
    }
}
