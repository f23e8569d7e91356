//! Loads text with the program `nft`.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::error::Error;

/// A table of 5,000 Nodes takes well under a second.
const PATIENCE: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(2);

/// Where programs of administration are, for a `PATH` that does not say so: a
/// user's, or none at all, as in a container.
const SYSTEM_FOLDERS: [&str; 5] = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"];

/// Runs `nft -f -` over `script`, in the calling thread's network namespace.
/// The text goes through a file without a name in `folder`, so that nothing
/// blocks on a program that does not read.
pub(super) fn load(nft: &Path, folder: &Path, script: &str) -> Result<(), Error> {
    let failed = |source| Error::NftRun {
        path: nft.to_owned(),
        source,
    };
    let unwritten = |source| Error::Script {
        folder: folder.to_owned(),
        source,
    };
    let mut input = tempfile::tempfile_in(folder).map_err(unwritten)?;
    let mut complaints = tempfile::tempfile_in(folder).map_err(unwritten)?;
    input.write_all(script.as_bytes()).map_err(unwritten)?;
    input.rewind().map_err(unwritten)?;
    let child = Command::new(nft)
        .args(["-f", "-"])
        .env("LC_ALL", "C")
        .env("PATH", search_path(env::var_os("PATH")))
        .stdin(Stdio::from(input))
        .stdout(Stdio::null())
        .stderr(complaints.try_clone().map_err(failed)?)
        .spawn();
    let mut child = match child {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(Error::NftMissing {
                path: nft.to_owned(),
            });
        }
        other => other.map_err(failed)?,
    };
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            break status;
        }
        if start.elapsed() > PATIENCE {
            child.kill().map_err(failed)?;
            child.wait().map_err(failed)?;
            return Err(Error::NftSlow {
                path: nft.to_owned(),
                seconds: PATIENCE.as_secs(),
            });
        }
        thread::sleep(POLL);
    };
    if status.success() {
        return Ok(());
    }
    Err(Error::NftRefused {
        path: nft.to_owned(),
        stderr: text(&mut complaints).unwrap_or_else(|_| status.to_string()),
    })
}

/// `path`, and then the system's folders.
fn search_path(path: Option<OsString>) -> OsString {
    let own = path.filter(|path| !path.is_empty());
    let mut all: Vec<OsString> = own.into_iter().collect();
    all.extend(SYSTEM_FOLDERS.map(OsString::from));
    all.join(OsStr::new(":"))
}

/// The first lines of what nft said, as one.
fn text(complaints: &mut File) -> io::Result<String> {
    let mut text = String::new();
    complaints.rewind()?;
    complaints.take(2000).read_to_string(&mut text)?;
    let lines: Vec<&str> = text.lines().take(6).map(str::trim).collect();
    Ok(lines.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nft_is_found_without_a_path_and_the_given_one_comes_first() {
        let none = "/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin";
        assert_eq!(search_path(None), none);
        assert_eq!(search_path(Some("".into())), none);
        let own = search_path(Some("/opt/bin".into()));
        assert_eq!(own.to_str().unwrap(), format!("/opt/bin:{none}"));
    }
}
