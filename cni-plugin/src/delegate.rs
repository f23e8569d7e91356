//! Running another IPAM plugin: CNI specification, section 4.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::{fd::AsFd, unix::fs::PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command as Process, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::memfd::{MFdFlags, memfd_create};
use tweed_cni::{CniError, Code, Command, config::LIMIT};
use tweed_ipam::record::Record;

use crate::not_done::NotDone;

/// Time that a plugin gets. A runtime gives one call of ours some minutes, in which an
/// ADD may need two calls: the second takes back what the first has given. The longest
/// that is known to be in order is a plugin that waits for a DHCP lease.
const TIME_LIMIT: Duration = Duration::from_secs(90);

/// A call of another plugin.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// The verb.
    pub command: Command,
    /// The plugin's file name.
    pub plugin: &'a str,
    /// Where it is searched.
    pub cni_path: &'a [PathBuf],
    /// What it gets on stdin.
    pub config: &'a [u8],
    /// The attachment, where it is not that of the call to this process.
    pub of: Option<&'a Record>,
}

/// Calls other plugins. Tests replace it.
pub trait Delegate {
    /// Runs the plugin and returns its stdout.
    ///
    /// # Errors
    /// The plugin's own error; code 106 where it returned none, could not be run or did
    /// not end in time; code 4 without `CNI_PATH`. One that was started may have done a part
    /// of its work.
    fn call(&mut self, call: Call<'_>) -> Result<Vec<u8>, NotDone>;
}

/// Runs plugins as processes, with the environment of this one.
#[derive(Debug, Clone, Copy)]
pub struct Processes {
    time_limit: Duration,
}

impl Default for Processes {
    fn default() -> Self {
        Self {
            time_limit: TIME_LIMIT,
        }
    }
}

impl Delegate for Processes {
    fn call(&mut self, call: Call<'_>) -> Result<Vec<u8>, NotDone> {
        let program = find(call.plugin, call.cni_path).map_err(NotDone::before_start)?;
        let failed = |error: io::Error| {
            let problem = format!("cannot run the IPAM plugin {}: {error}", program.display());
            CniError::new(Code::DelegateFailed, problem)
        };
        let not_started = |error| NotDone::before_start(failed(error));
        let mut process = Process::new(&program);
        process
            .env("CNI_COMMAND", call.command.as_str())
            .stdin(Stdio::from(in_memory(call.config).map_err(not_started)?))
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        if let Some(record) = call.of {
            process
                .env("CNI_CONTAINERID", record.container_id.as_str())
                .env("CNI_IFNAME", record.ifname.as_str())
                .env("CNI_NETNS", record.netns.as_deref().unwrap_or_default());
        }
        let child = process.spawn().map_err(not_started)?;
        let deadline = Instant::now() + self.time_limit;
        let (stdout, status) =
            output(child, deadline).map_err(|error| NotDone::after_start(failed(error)))?;
        let fault = match status {
            Some(status) if status.success() && stdout.len() <= LIMIT => return Ok(stdout),
            _ if stdout.len() > LIMIT => format!("wrote more than {LIMIT} bytes"),
            Some(status) => format!("failed without an error document ({status})"),
            None => format!("did not end within {:?}", self.time_limit),
        };
        let error = CniError::from_document(&stdout).unwrap_or_else(|| {
            let (program, verb) = (program.display(), call.command.as_str());
            let problem = format!("the IPAM plugin {program} {fault} on {verb}");
            CniError::new(Code::DelegateFailed, problem).details(beginning(&stdout))
        });
        Err(NotDone::after_start(error))
    }
}

/// What the process writes to stdout, somewhat more than [`LIMIT`] at most, and its
/// exit status; none if it was killed because it had not ended at `deadline`.
fn output(mut child: Child, deadline: Instant) -> io::Result<(Vec<u8>, Option<ExitStatus>)> {
    let stdout = match child.stdout.take() {
        // The pipe is closed after this, so a plugin that still writes gets SIGPIPE
        // and ends.
        Some(pipe) => read_until(pipe, deadline),
        None => Ok(Vec::new()),
    };
    // A process ends right after it has closed its stdout, so the first looks follow
    // each other closely.
    let mut pause = Duration::from_micros(50);
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if stdout.is_err() || Instant::now() >= deadline {
            child.kill()?;
            child.wait()?;
            break None;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    };
    Ok((stdout?, status))
}

/// Reads until the end, the limit or the deadline. A process that the plugin started may
/// keep the pipe open for longer than the plugin lives.
fn read_until(mut pipe: ChildStdout, deadline: Instant) -> io::Result<Vec<u8>> {
    let mut read = Vec::new();
    let mut buffer = [0; 16 * 1024];
    while read.len() <= LIMIT {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        let mut files = [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)];
        match poll(&mut files, timeout) {
            Ok(0) if Instant::now() >= deadline => break,
            Ok(0) | Err(Errno::EINTR) => continue,
            Ok(_) => {}
            Err(errno) => return Err(errno.into()),
        }
        match pipe.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => read.extend_from_slice(&buffer[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}

/// The config as a file: writing a large one to a pipe would block until the
/// plugin reads it.
fn in_memory(config: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create("cni-config", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(config)?;
    file.rewind()?;
    Ok(file)
}

fn find(plugin: &str, cni_path: &[PathBuf]) -> Result<PathBuf, CniError> {
    if cni_path.is_empty() {
        return Err(CniError::new(
            Code::InvalidEnvironment,
            format!("CNI_PATH is missing: the IPAM plugin {plugin} cannot be found without it"),
        ));
    }
    let is_program = |path: &Path| {
        path.metadata()
            .is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0)
    };
    let mut candidates = cni_path.iter().map(|folder| folder.join(plugin));
    candidates.find(|path| is_program(path)).ok_or_else(|| {
        let paths = cni_path.iter().map(|folder| folder.display().to_string());
        let folders: Vec<String> = paths.collect();
        CniError::new(
            Code::DelegateFailed,
            format!("the IPAM plugin {plugin} (ipam.type) is in none of the folders of CNI_PATH"),
        )
        .details(format!("searched: {}", folders.join(", ")))
    })
}

fn beginning(stdout: &[u8]) -> String {
    let text = String::from_utf8_lossy(&stdout[..stdout.len().min(400)]);
    text.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::write_script;

    fn script(body: &str) -> (tempfile::TempDir, Vec<PathBuf>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fake");
        write_script(&path, &format!("#!/bin/sh\n{body}\n"));
        let cni_path = vec!["/nonexistent".into(), folder.path().to_owned()];
        (folder, cni_path)
    }

    fn call(body: &str, config: &[u8]) -> Result<Vec<u8>, CniError> {
        call_within(TIME_LIMIT, body, config)
    }

    fn call_within(time_limit: Duration, body: &str, config: &[u8]) -> Result<Vec<u8>, CniError> {
        let (_folder, cni_path) = script(body);
        let called = Processes { time_limit }.call(Call {
            command: Command::Add,
            plugin: "fake",
            cni_path: &cni_path,
            config,
            of: None,
        });
        called.map_err(|failed| {
            assert!(failed.needs_undo, "{}", failed.error);
            failed.error
        })
    }

    #[test]
    fn a_plugin_gets_the_command_and_the_whole_config() {
        let config = vec![b'x'; LIMIT];
        let stdout = call("printf '%s ' \"$CNI_COMMAND\"; wc -c", &config).unwrap();
        let words = String::from_utf8(stdout).unwrap();
        assert_eq!(
            words.split_whitespace().collect::<Vec<_>>(),
            ["ADD", "1048576"]
        );
    }

    #[test]
    fn its_error_is_passed_on() {
        let error = call(
            r#"echo '{"code":77,"msg":"no","details":"way"}'; exit 1"#,
            b"{}",
        );
        let expected = CniError {
            code: 77,
            msg: "no".to_owned(),
            details: "way".to_owned(),
        };
        assert_eq!(error, Err(expected));
    }

    #[test]
    fn a_failure_without_a_document_is_code_106_with_its_output() {
        let error = call("echo oops; exit 3", b"{}").unwrap_err();
        assert_eq!((error.code, error.details.as_str()), (106, "oops"));
        assert!(error.msg.contains("exit status: 3"), "{error}");
    }

    #[test]
    fn endless_output_is_cut_off() {
        let error = call("yes", b"{}").unwrap_err();
        assert_eq!(error.code, 106);
        assert!(error.msg.contains("1048576"), "{error}");
    }

    #[test]
    fn a_plugin_that_does_not_end_is_killed_and_named() {
        for body in ["exec sleep 1000", "exec >&-; exec sleep 1000"] {
            let error = call_within(Duration::from_millis(200), body, b"{}").unwrap_err();
            assert_eq!(error.code, 106);
            assert!(error.msg.contains("did not end within 200ms"), "{error}");
        }
    }

    /// It has ended, and what it wrote counts.
    #[test]
    fn a_process_that_a_plugin_leaves_behind_is_not_waited_for_without_end() {
        let body = "while test -e $0; do sleep 0.1; done & echo '{}'";
        let (folder, _) = script(body);
        let mut plugin = Process::new(folder.path().join("fake"));
        let mut child = plugin.stdout(Stdio::piped()).spawn().unwrap();
        // So that the time that it needs does not matter: the deadline passes after it.
        child.wait().unwrap();
        let (stdout, status) = output(child, Instant::now()).unwrap();
        assert_eq!(stdout, b"{}\n");
        assert!(status.unwrap().success());
    }

    #[test]
    fn a_plugin_that_is_not_found_is_named() {
        let (_folder, cni_path) = script("");
        let look = |plugin, cni_path| {
            let called = Processes::default().call(Call {
                command: Command::Add,
                plugin,
                cni_path,
                config: b"{}",
                of: None,
            });
            let failed = called.unwrap_err();
            assert!(!failed.needs_undo, "{}", failed.error);
            failed.error
        };
        let error = look("other", &cni_path);
        assert_eq!(error.code, 106);
        assert!(
            error.msg.contains("other") && error.details.contains("/nonexistent"),
            "{error}"
        );
        assert_eq!(look("fake", &[]).code, 4);
    }
}
