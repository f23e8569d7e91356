//! Running another IPAM plugin: CNI specification, section 4.

use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};
use std::{fs::File, os::unix::fs::PermissionsExt};

use nix::sys::memfd::{MFdFlags, memfd_create};
use tweed_cni::{CniError, Code, Command, config::LIMIT};

/// Calls other plugins. Tests replace it.
pub trait Delegate {
    /// Runs `plugin`, found in `cni_path`, with `config` on stdin, and returns its
    /// stdout.
    ///
    /// # Errors
    /// The plugin's own error; code 106 where it returned none or could not be
    /// run; code 4 without `CNI_PATH`.
    fn call(
        &mut self,
        command: Command,
        plugin: &str,
        cni_path: &[PathBuf],
        config: &[u8],
    ) -> Result<Vec<u8>, CniError>;
}

/// Runs plugins as processes, with the environment of this one.
#[derive(Debug, Clone, Copy)]
pub struct Processes;

impl Delegate for Processes {
    fn call(
        &mut self,
        command: Command,
        plugin: &str,
        cni_path: &[PathBuf],
        config: &[u8],
    ) -> Result<Vec<u8>, CniError> {
        let program = find(plugin, cni_path)?;
        let failed = |error: io::Error| {
            let problem = format!("cannot run the IPAM plugin {}: {error}", program.display());
            CniError::new(Code::DelegateFailed, problem)
        };
        let mut child = Process::new(&program)
            .env("CNI_COMMAND", command.as_str())
            .stdin(Stdio::from(in_memory(config).map_err(failed)?))
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .map_err(failed)?;
        let mut stdout = Vec::new();
        let read = match child.stdout.take() {
            Some(pipe) => pipe.take(LIMIT as u64 + 1).read_to_end(&mut stdout),
            None => Ok(0),
        };
        // The pipe is closed by now, so a plugin that still writes gets SIGPIPE and
        // ends.
        let status = child.wait().map_err(failed)?;
        read.map_err(failed)?;
        if status.success() && stdout.len() <= LIMIT {
            return Ok(stdout);
        }
        Err(CniError::from_document(&stdout).unwrap_or_else(|| {
            let problem = if stdout.len() > LIMIT {
                format!("wrote more than {LIMIT} bytes")
            } else {
                format!("failed without an error document ({status})")
            };
            let (program, verb) = (program.display(), command.as_str());
            let problem = format!("the IPAM plugin {program} {problem} on {verb}");
            CniError::new(Code::DelegateFailed, problem).details(beginning(&stdout))
        }))
    }
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
        let folders = cni_path.iter().map(|folder| folder.display().to_string());
        let folders: Vec<String> = folders.collect();
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
    use std::fs;

    fn script(body: &str) -> (tempfile::TempDir, Vec<PathBuf>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fake");
        fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let cni_path = vec!["/nonexistent".into(), folder.path().to_owned()];
        (folder, cni_path)
    }

    fn call(body: &str, config: &[u8]) -> Result<Vec<u8>, CniError> {
        let (_folder, cni_path) = script(body);
        Processes.call(Command::Add, "fake", &cni_path, config)
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
    fn a_plugin_that_is_not_found_is_named() {
        let (_folder, cni_path) = script("");
        let error = Processes
            .call(Command::Add, "other", &cni_path, b"{}")
            .unwrap_err();
        assert_eq!(error.code, 106);
        assert!(
            error.msg.contains("other") && error.details.contains("/nonexistent"),
            "{error}"
        );
        assert_eq!(
            Processes
                .call(Command::Add, "fake", &[], b"{}")
                .unwrap_err()
                .code,
            4
        );
    }
}
