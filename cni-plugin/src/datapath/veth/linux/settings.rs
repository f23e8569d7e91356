//! The IPv6 settings of one link, files below `/proc/sys/net/ipv6/conf/<link>`.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;

use nix::fcntl::{OFlag, openat};
use nix::libc::{O_DIRECTORY, O_PATH};
use nix::sys::stat::Mode;
use tweed_netlink::Error;

use super::Failed;

/// A setting that keeps its value.
pub(super) struct Unwritten {
    /// Its index in what was to be written.
    pub(super) at: usize,
    /// A warning for the log.
    pub(super) warning: String,
}

/// Writes 0 to settings of one link, and returns those that cannot be. A setting need
/// not exist: a kernel, or a link with too small an MTU, may be without IPv6. A
/// setting that has another value and cannot be written because `/proc/sys` is
/// read-only is a warning, as the node's own rules still hold; any other failure is
/// an error.
pub(super) fn write(link: &str, settings: &[&str]) -> Result<Vec<Unwritten>, Failed> {
    let path = format!("/proc/sys/net/ipv6/conf/{link}");
    // The folder is opened once: looking up its path costs more than the setting.
    let folder = OpenOptions::new()
        .read(true)
        .custom_flags(O_PATH | O_DIRECTORY)
        .open(&path);
    let folder = match folder {
        Ok(folder) => folder,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => {
            let error = Error {
                operation: "open",
                object: path,
                cause: error.into(),
            };
            return Err(Failed { step: 0, error });
        }
    };
    let mut unwritten = Vec::new();
    for (at, setting) in settings.iter().enumerate() {
        let warning =
            write_one(&folder, &path, setting).map_err(|error| Failed { step: at, error })?;
        unwritten.extend(warning.map(|warning| Unwritten { at, warning }));
    }
    Ok(unwritten)
}

fn write_one(folder: &File, path: &str, setting: &str) -> Result<Option<String>, Error> {
    // Without O_CREAT: below /proc, a missing file would be "not permitted" instead
    // of "not found".
    let open =
        |access| openat(folder, setting, access | OFlag::O_CLOEXEC, Mode::empty()).map(File::from);
    let written = open(OFlag::O_WRONLY)
        .map_err(io::Error::from)
        .and_then(|mut file| file.write_all(b"0"));
    let error = match written {
        Err(error) if error.kind() != io::ErrorKind::NotFound => error,
        _ => return Ok(None),
    };
    let mut found = String::new();
    let read = open(OFlag::O_RDONLY)
        .map_err(io::Error::from)
        .and_then(|mut file| file.read_to_string(&mut found));
    if read.is_ok() && found.trim() == "0" {
        return Ok(None);
    }
    let path = format!("{path}/{setting}");
    if error.kind() == io::ErrorKind::ReadOnlyFilesystem {
        return Ok(Some(format!(
            "{path} stays {:?}: it should be \"0\", but /proc/sys is read-only here",
            found.trim()
        )));
    }
    Err(Error {
        operation: "write",
        object: format!("\"0\" to {path}"),
        cause: error.into(),
    })
}
