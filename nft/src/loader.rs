//! Loads text with the program `nft`.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tokio_util::sync::CancellationToken;
use tweed_netlink::nf::object::TableKey;

use crate::error::Error;

/// Maximum time for loading a table: that of 5,000 Nodes takes well under a second.
const PATIENCE: Duration = Duration::from_secs(20);
/// Maximum time that remains for it once the agent is to stop. A program that is
/// killed leaves nothing half done: the kernel takes the whole table or none of it.
const LAST_PATIENCE: Duration = Duration::from_secs(1);
/// Maximum time that a killed program is waited for: one that is in a system call
/// ends only after it.
const DYING: Duration = Duration::from_millis(500);
/// Pause between two looks whether the program has ended.
const POLL: Duration = Duration::from_millis(2);

/// Where programs of administration are, for a `PATH` that does not say so: a
/// user's, or none at all, as in a container.
const SYSTEM_FOLDERS: [&str; 5] = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"];

/// Runs `nft -f -` over `script`, in the calling thread's network namespace.
/// The text goes through a file without a name in `folder`, so that nothing
/// blocks on a program that does not read. `stop` ends it early.
pub(super) fn load(
    nft: &Path,
    folder: &Path,
    script: &str,
    table: TableKey<'_>,
    stop: &CancellationToken,
) -> Result<(), Error> {
    let failed = |source| Error::NftRun(nft.to_owned(), source);
    let unwritten = |source| Error::Script(folder.to_owned(), source);
    let mut input = tempfile::tempfile_in(folder).map_err(unwritten)?;
    let mut stderr = tempfile::tempfile_in(folder).map_err(unwritten)?;
    input.write_all(script.as_bytes()).map_err(unwritten)?;
    input.rewind().map_err(unwritten)?;
    let mut child = Command::new(nft)
        .args(["-f", "-"])
        .env("LC_ALL", "C")
        .env("PATH", search_path(env::var_os("PATH")))
        .stdin(Stdio::from(input))
        .stdout(Stdio::null())
        .stderr(stderr.try_clone().map_err(failed)?)
        .spawn()
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Error::NftMissing(nft.to_owned()),
            _ => failed(error),
        })?;
    let status = match wait(&mut child, PATIENCE, Some(stop)).map_err(failed)? {
        Waited::Ended(status) => status,
        late => {
            child.kill().map_err(failed)?;
            wait(&mut child, DYING, None).map_err(failed)?;
            let path = nft.to_owned();
            return Err(match late {
                Waited::Stopped => Error::NftStopped(path),
                Waited::Ended(_) | Waited::Slow => Error::NftSlow(path, PATIENCE.as_secs()),
            });
        }
    };
    if status.success() {
        return Ok(());
    }
    Err(Error::NftRefused {
        table: table.to_string(),
        path: nft.to_owned(),
        stderr: text(&mut stderr)
            .ok()
            .filter(|text| !text.is_empty())
            .unwrap_or_else(|| without_a_word(status)),
    })
}

/// How a program has ended that wrote nothing: it was killed, or has crashed. nft reads the
/// tables of all programs before it loads one, and 1.0.6 crashes over what later ones store
/// with a set.
fn without_a_word(status: ExitStatus) -> String {
    if status.signal() != Some(Signal::SIGSEGV as i32) {
        return status.to_string();
    }
    format!(
        "{status}: versions before 1.1 crash over a set or map that a newer nft has made in \
         any table of this machine; give the agent that nft, or 1.1, by --nft"
    )
}

/// The result of waiting for a program.
enum Waited {
    /// It has ended.
    Ended(ExitStatus),
    /// It still runs after its time.
    Slow,
    /// It still runs, and the agent is to stop.
    Stopped,
}

/// Waits for a program's end for as long as `patience`, or only for a moment
/// longer once `stop` says so.
fn wait(
    child: &mut Child,
    patience: Duration,
    stop: Option<&CancellationToken>,
) -> io::Result<Waited> {
    let mut deadline = Instant::now() + patience;
    let mut late = Waited::Slow;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Waited::Ended(status));
        }
        if Instant::now() >= deadline {
            return Ok(late);
        }
        let stopped = stop.is_some_and(CancellationToken::is_cancelled);
        if stopped && matches!(late, Waited::Slow) {
            late = Waited::Stopped;
            deadline = deadline.min(Instant::now() + LAST_PATIENCE);
        }
        thread::sleep(POLL);
    }
}

/// `path`, and then the system's folders.
fn search_path(path: Option<OsString>) -> OsString {
    let own = path.filter(|path| !path.is_empty());
    let mut all: Vec<OsString> = own.into_iter().collect();
    all.extend(SYSTEM_FOLDERS.map(OsString::from));
    all.join(OsStr::new(":"))
}

/// The first lines of nft's error output, as one line.
fn text(stderr: &mut File) -> io::Result<String> {
    let mut text = String::new();
    stderr.rewind()?;
    stderr.take(2000).read_to_string(&mut text)?;
    let lines: Vec<&str> = text.lines().take(6).map(str::trim).collect();
    Ok(lines.join("; "))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::script::write_script;
    use crate::tables::TABLE;

    #[test]
    fn a_program_that_hangs_ends_with_the_agent() {
        let folder = tempfile::tempdir().unwrap();
        let nft = folder.path().join("nft");
        let number = folder.path().join("number");
        let script = format!(
            "#!/bin/sh\necho $$ > {}\nexec sleep 1000\n",
            number.display()
        );
        write_script(&nft, &script);
        let stop = CancellationToken::new();
        let told = stop.clone();
        let loading = thread::spawn(move || load(&nft, folder.path(), "", TABLE, &told));
        let has_started = || fs::read_to_string(&number).is_ok_and(|text| text.ends_with('\n'));
        while !has_started() {
            assert!(!loading.is_finished());
            thread::sleep(POLL);
        }
        let number = fs::read_to_string(&number).unwrap();
        stop.cancel();
        let stopped = loading.join().unwrap();
        assert!(matches!(stopped, Err(Error::NftStopped(_))), "{stopped:?}");
        assert!(!Path::new("/proc").join(number.trim()).exists());
    }

    #[test]
    fn a_program_that_crashes_is_an_error_with_its_signal() {
        let folder = tempfile::tempdir().unwrap();
        let nft = folder.path().join("nft");
        write_script(&nft, "#!/bin/sh\nkill -SEGV $$\n");
        let stop = CancellationToken::new();
        let crashed = load(&nft, folder.path(), "", TABLE, &stop).unwrap_err();
        assert!(crashed.to_string().contains("signal: 11"), "{crashed}");
    }

    #[test]
    fn nft_is_found_without_a_path_and_the_given_one_comes_first() {
        let none = "/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin";
        assert_eq!(search_path(None), none);
        assert_eq!(search_path(Some("".into())), none);
        let own = search_path(Some("/opt/bin".into()));
        assert_eq!(own.to_str().unwrap(), format!("/opt/bin:{none}"));
    }
}
