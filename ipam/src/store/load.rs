//! Reading the file of one record.

use std::io;

use nix::errno::Errno;

use super::Store;
use crate::record::Record;

/// The content of a record's file.
#[derive(Debug)]
pub(super) enum Loaded {
    /// There is no such file.
    Missing,
    /// A record whose key is the file's name.
    Record(Box<Record>),
    /// Something that is not a record of this name, and why.
    Damaged(String),
    /// The kernel refused to read it.
    Unreadable(io::Error),
}

/// Reads the record named `id`.
pub(super) fn load(store: &Store, id: &str) -> Loaded {
    let content = match store.host.disk.read(&store.record_path(id)) {
        Ok(content) => content,
        Err(error) => {
            // With O_NOFOLLOW, opening a symbolic link fails with ELOOP.
            let is_link = error.raw_os_error() == Some(Errno::ELOOP as i32);
            return match error.kind() {
                io::ErrorKind::NotFound => Loaded::Missing,
                io::ErrorKind::InvalidData => Loaded::Damaged(error.to_string()),
                _ if is_link => Loaded::Damaged("it is a symbolic link".to_owned()),
                _ => Loaded::Unreadable(error),
            };
        }
    };
    match serde_json::from_slice::<Record>(&content) {
        Err(error) => Loaded::Damaged(error.to_string()),
        Ok(record) if record.network != store.network || record.attachment().id() != id => {
            Loaded::Damaged(format!("it belongs to {}", record.attachment()))
        }
        Ok(record) => Loaded::Record(Box::new(record)),
    }
}
