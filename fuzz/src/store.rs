//! The folder of the address store: records, claims, files of host-local, and whatever
//! else may lie there.
//!
//! Input: for each entry a line `@file NAME`, `@link NAME` or `@folder NAME`, then its
//! content or target up to the next such line. The name `attachments/` alone stands for
//! the one that a record with this content has.

use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;
use tweed_core::attachment::{Attachment, ContainerId, IfName, NetworkName};
use tweed_ipam::ranges::{IpamConfig, RangeSets};
use tweed_ipam::record::{Owner, Process, Record};
use tweed_ipam::store::disk::READ_MAX;
use tweed_ipam::store::{Host, Store};

const NETWORK: &str = "net";
const BOOT_ID: &str = "11111111-1111-4111-8111-111111111111";
/// Nobody else has the lock.
const WAIT: Duration = Duration::from_secs(5);
/// Most entries, so that a run stays short.
const ENTRIES: usize = 24;

/// A record that is read is written and read back the same. Whatever lies in the
/// folder, it can be listed, and an ADD that succeeds gets an address that no file of
/// that name stands for, reads back its record, and leaves nothing after its DEL. Files
/// of host-local are removed with their own container only.
pub fn check(input: &[u8]) {
    let folder = fill(input);
    let boot_id = folder.path().join("boot_id");
    let host = Host {
        has_link: |_| false,
        ..Host::with_boot_id(&boot_id)
    };
    let network = NetworkName::new(NETWORK).expect("a name");
    let store = Store::open_on(host, folder.path(), &network);
    let ranges = ranges();
    let Ok((records, problems)) = store.records() else {
        return;
    };
    for problem in problems {
        let _ = problem.to_string();
    }
    for record in records {
        same_when_written(&record);
        assert_eq!(store.read(&record.attachment()).ok(), Some(Some(record)));
    }
    if let Ok(usage) = store.usage(&ranges) {
        assert!(usage.iter().all(|set| set.used + set.free == set.total));
    }
    let attachment = Attachment {
        network,
        container_id: ContainerId::new("probe").expect("a name"),
        ifname: IfName::new("eth0").expect("a name"),
    };
    let before = host_locals(store.folder());
    let freed = store.free_host_local(&attachment, WAIT);
    let after = host_locals(store.folder());
    for (address, content) in &before {
        if freed.as_ref().is_ok_and(|freed| freed.contains(address)) {
            let text = String::from_utf8_lossy(content);
            assert!(text.trim_start().starts_with("probe"), "{address}: {text}");
        } else {
            assert!(after.contains(&(*address, content.clone())), "{address}");
        }
    }
    add_and_delete(&store, attachment, &ranges, &after);
}

fn add_and_delete(
    store: &Store,
    attachment: Attachment,
    ranges: &RangeSets,
    host_locals: &[(IpAddr, Vec<u8>)],
) {
    let by = Process::current().expect("/proc is there");
    let seed = Record::adding(attachment.clone(), Owner::Tweed, by);
    let Ok(mut locked) = store.lock(WAIT) else {
        return;
    };
    let Ok(held) = locked.reserve(&seed, ranges, &[]) else {
        return;
    };
    let live = locked.mark_live(&held).expect("an ADD is completed");
    drop(held);
    assert_eq!(live.addresses.len(), ranges.len());
    for network in &live.addresses {
        let address = network.ip();
        assert!(ranges.iter().any(|set| set.can_give(address)), "{address}");
        let is_taken = host_locals.iter().any(|(taken, _)| *taken == address);
        assert!(!is_taken, "{address} is host-local's");
    }
    same_when_written(&live);
    assert_eq!(store.read(&attachment).ok(), Some(Some(live.clone())));
    assert_eq!(store.unclaimed(&live).ok(), Some(Vec::new()));
    let freed = locked.free(&attachment).ok().flatten();
    assert!(freed.is_some_and(|freed| freed.is_complete()));
    assert_eq!(store.read(&attachment).ok(), Some(None));
    for network in &live.addresses {
        let claim = store.folder().join(network.ip().to_string());
        assert!(claim.symlink_metadata().is_err(), "{}", claim.display());
    }
}

fn same_when_written(record: &Record) {
    let bytes = serde_json::to_vec(record).expect("a record is written");
    let read = serde_json::from_slice::<Record>(&bytes).expect("a record is read");
    assert_eq!(&read, record);
}

fn ranges() -> RangeSets {
    let ipam = r#"{"ranges": [[{"subnet": "10.88.0.0/29"}], [{"subnet": "fd88::/125"}]]}"#;
    let ipam = serde_json::from_str(ipam).expect("JSON");
    let config = IpamConfig::parse(&ipam, None);
    config.expect("a config of two ranges").ranges
}

/// The regular files named like addresses.
fn host_locals(folder: &Path) -> Vec<(IpAddr, Vec<u8>)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let files = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
    let read = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let address: IpAddr = name.parse().ok()?;
        (address.to_string() == name).then_some((address, fs::read(entry.path()).ok()?))
    };
    files.filter_map(read).collect()
}

/// A folder with these entries, in memory if possible, as `/run` is.
fn fill(input: &[u8]) -> TempDir {
    let created = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let folder = created.expect("a temporary folder");
    let store = folder.path().join(NETWORK);
    let made = fs::create_dir_all(store.join("attachments"));
    made.expect("a folder in it");
    let boot_id = folder.path().join("boot_id");
    fs::write(boot_id, format!("{BOOT_ID}\n")).expect("a file in it");
    for (kind, name, content) in entries(input).take(ENTRIES) {
        let Some(name) = safe_name(name, content) else {
            continue;
        };
        let path = store.join(name);
        let text = String::from_utf8_lossy(content);
        let target = text.trim_end_matches('\n');
        // What is there already, or cannot be made, is left out.
        let _ = match kind {
            b"file" => fs::write(path, content),
            b"link" if is_inside(target) => symlink(target, path),
            b"folder" => fs::create_dir(path),
            _ => Ok(()),
        };
    }
    folder
}

/// Kind, name and content of each entry.
fn entries(input: &[u8]) -> impl Iterator<Item = (&[u8], &[u8], &[u8])> {
    let pairs = input.windows(2).enumerate();
    let marked = pairs.filter(|(at, pair)| pair[0] == b'@' && (*at == 0 || input[at - 1] == b'\n'));
    let starts: Vec<usize> = marked.map(|(at, _)| at).collect();
    let ends: Vec<usize> = starts
        .iter()
        .skip(1)
        .copied()
        .chain([input.len()])
        .collect();
    starts.into_iter().zip(ends).filter_map(|(start, end)| {
        let entry = &input[start + 1..end];
        let line = entry.iter().position(|byte| *byte == b'\n')?;
        let space = entry[..line].iter().position(|byte| *byte == b' ')?;
        Some((&entry[..space], &entry[space + 1..line], &entry[line + 1..]))
    })
}

/// A name of an entry that stays inside the store's folder.
fn safe_name(name: &[u8], content: &[u8]) -> Option<String> {
    let name = std::str::from_utf8(name).ok()?;
    if name == "attachments/" {
        let record =
            serde_json::from_slice::<Record>(content.get(..READ_MAX as usize).unwrap_or(content));
        let id = record.map_or_else(|_| "0".repeat(64), |record| record.attachment().id());
        return Some(format!("attachments/{id}"));
    }
    let (folder, base) = name.rsplit_once('/').unwrap_or(("", name));
    let is_base = !matches!(base, "" | "." | "..") && base.len() < 200 && !base.contains('\0');
    (is_base && matches!(folder, "" | "attachments")).then(|| name.to_owned())
}

fn is_inside(target: &str) -> bool {
    !target.is_empty()
        && !target.starts_with('/')
        && !target.contains("..")
        && !target.contains('\0')
}
