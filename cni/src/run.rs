//! Serving one call: reads it, runs the plugin's verb, writes the document.

use std::io::{self, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{any::Any, cell::RefCell, fmt, path::PathBuf, time::Duration};

use serde_json::{Value, json};

use crate::call::{self, Command, Environment, Target};
use crate::config::{self, Config};
use crate::error::{CniError, Code};
use crate::{result::AddResult, version::CniVersion};

/// How long VERSION waits for its input, which changes one word of the answer.
const VERSION_WAIT: Duration = Duration::from_secs(1);

/// How long the input of a call is waited for: without a limit, as no other verb can do
/// without its config, but for VERSION, which people call by hand.
pub fn input_limit(env: &Environment<'_>) -> Option<Duration> {
    let is_version = matches!(call::command(env), Ok(Command::Version));
    is_version.then_some(VERSION_WAIT)
}

/// The inputs and outputs of one call. Tests pass their own.
pub struct Invocation<'a> {
    /// The environment's variables.
    pub env: &'a Environment<'a>,
    /// The config; read to its end, up to [`config::LIMIT`]. That of a process is read
    /// through [`tweed_core::stdin::Stdin`], within [`input_limit`].
    pub stdin: &'a mut dyn Read,
    /// Gets the one document.
    pub stdout: &'a mut dyn Write,
    /// Gets the log lines.
    pub stderr: &'a mut dyn Write,
}

/// The part of a call that every verb needs.
pub struct Request<'a> {
    /// The network config.
    pub config: Config,
    /// `CNI_PATH`: folders with other plugins.
    pub cni_path: Vec<PathBuf>,
    log: RefCell<&'a mut dyn Write>,
}

impl Request<'_> {
    /// Writes one line to stderr, for people. The call does not fail if that is not
    /// possible.
    pub fn log(&self, line: impl fmt::Display) {
        let _ = writeln!(self.log.borrow_mut(), "{line}");
    }
}

/// The verbs of a plugin. [`run`] itself answers VERSION.
pub trait Plugin {
    /// Attaches a container.
    ///
    /// # Errors
    /// After everything that was done has been undone.
    fn add(&mut self, request: &Request<'_>, target: &Target) -> Result<AddResult, CniError>;

    /// Detaches a container; it is a success if there is nothing to do. It also
    /// undoes an ADD whose result the runtime did not get.
    ///
    /// # Errors
    /// After everything that was possible has been done.
    fn del(&mut self, request: &Request<'_>, target: &Target) -> Result<(), CniError>;

    /// Compares an attachment with the result of its ADD.
    ///
    /// # Errors
    /// An error that names all differences.
    fn check(&mut self, request: &Request<'_>, target: &Target) -> Result<(), CniError>;

    /// Succeeds if an ADD could be served.
    ///
    /// # Errors
    /// An error with the reason why not.
    fn status(&mut self, request: &Request<'_>) -> Result<(), CniError>;

    /// Frees what no listed attachment uses.
    ///
    /// # Errors
    /// After everything else has been freed.
    fn gc(&mut self, request: &Request<'_>) -> Result<(), CniError>;
}

/// Serves one call and returns the exit code: 0, or 1 after an error document.
///
/// A panic of the plugin is caught and reported as code 999 with its message; the
/// standard hook has written its location to stderr before.
pub fn run(invocation: Invocation<'_>, plugin: &mut dyn Plugin) -> u8 {
    let Invocation {
        env,
        stdin,
        stdout,
        stderr,
    } = invocation;
    let mut version = CniVersion::LATEST;
    let served = catch_unwind(AssertUnwindSafe(|| {
        serve(env, stdin, stdout, stderr, plugin, &mut version)
    }));
    let outcome = served.unwrap_or_else(|panic| {
        Err(
            CniError::new(Code::Internal, "a bug in the plugin: it panicked")
                .details(panic_message(panic.as_ref())),
        )
    });
    let written = match outcome {
        Ok(written) => written.map(|()| 0),
        Err(error) => write(stdout, &error.document(version.as_str())).map(|()| 1),
    };
    written.unwrap_or_else(|error| {
        let _ = writeln!(stderr, "cannot write the document to stdout: {error}");
        1
    })
}

/// Writes a document at once, so that a reader never gets a part of one.
fn write(stdout: &mut dyn Write, document: &Value) -> io::Result<()> {
    stdout.write_all(format!("{document:#}\n").as_bytes())?;
    stdout.flush()
}

/// Serves the call up to the document of a success, and returns whether that could be
/// written.
fn serve(
    env: &Environment<'_>,
    stdin: &mut dyn Read,
    stdout: &mut dyn Write,
    stderr: &mut dyn Write,
    plugin: &mut dyn Plugin,
    version: &mut CniVersion,
) -> Result<io::Result<()>, CniError> {
    let command = call::command(env)?;
    let input = read_bounded(stdin);
    if command == Command::Version {
        let asked = input.ok().and_then(|bytes| config::version_of(&bytes));
        return Ok(write(stdout, &version_document(asked)));
    }
    let config = Config::parse(input?, version)?;
    if config.version < command.since() {
        return Err(CniError::new(
            Code::IncompatibleVersion,
            format!(
                "{} is not part of CNI {}: it is part of {} and later",
                command.as_str(),
                config.version,
                command.since()
            ),
        ));
    }
    let request = Request {
        config,
        cni_path: call::cni_path(env),
        log: RefCell::new(stderr),
    };
    let target = || call::target(env, &request.config.network, command);
    match command {
        Command::Add => {
            let target = target()?;
            let result = plugin.add(&request, &target)?;
            let written = write(stdout, &result.document(request.config.version));
            if written.is_err() {
                take_back(plugin, &request, &target);
            }
            return Ok(written);
        }
        Command::Del => plugin.del(&request, &target()?)?,
        Command::Check => plugin.check(&request, &target()?)?,
        Command::Status => plugin.status(&request)?,
        Command::Gc => plugin.gc(&request)?,
        Command::Version => {}
    }
    Ok(Ok(()))
}

/// Undoes an ADD that the runtime regards as failed, as it did not get the result.
fn take_back(plugin: &mut dyn Plugin, request: &Request<'_>, target: &Target) {
    let attachment = &target.attachment;
    match plugin.del(request, target) {
        Ok(()) => request.log(format_args!("the ADD of {attachment} was undone")),
        Err(error) => request.log(format_args!(
            "error: cannot undo the ADD of {attachment}: {error}; the next DEL or GC will"
        )),
    }
}

fn read_bounded(stdin: &mut dyn Read) -> Result<Vec<u8>, CniError> {
    let mut bytes = Vec::new();
    let limit = config::LIMIT as u64 + 1;
    stdin.take(limit).read_to_end(&mut bytes).map_err(|error| {
        CniError::new(Code::Io, "cannot read the network config from stdin")
            .details(error.to_string())
    })?;
    if bytes.len() > config::LIMIT {
        return Err(CniError::new(
            Code::Decoding,
            format!("the network config is longer than {} bytes", config::LIMIT),
        ));
    }
    Ok(bytes)
}

fn version_document(asked: Option<CniVersion>) -> Value {
    json!({
        "cniVersion": asked.unwrap_or(CniVersion::LATEST).as_str(),
        "supportedVersions": CniVersion::ALL.map(CniVersion::as_str),
    })
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => (*text).to_owned(),
        (None, Some(text)) => text.clone(),
        (None, None) => "without a message".to_owned(),
    }
}

#[cfg(test)]
mod tests;
