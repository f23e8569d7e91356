//! The frame around a plugin: one call in, one answer out.

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::io::{Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::call::{self, Command, Environment, Target};
use crate::config::{self, Config};
use crate::error::{CniError, Code};
use crate::result::AddResult;
use crate::version::CniVersion;

/// The process around the plugin, injected so that tests need no process.
pub struct Edges<'a> {
    /// The environment's variables.
    pub env: &'a dyn Environment,
    /// Where the config comes from; read to its end, within [`config::LIMIT`].
    pub stdin: &'a mut dyn Read,
    /// Where the one document goes.
    pub stdout: &'a mut dyn Write,
    /// Where logs go.
    pub stderr: &'a mut dyn Write,
}

/// What every verb is given.
pub struct Request<'a> {
    /// The network config.
    pub config: Config,
    /// `CNI_PATH`: folders that hold other plugins.
    pub cni_path: Vec<PathBuf>,
    log: RefCell<&'a mut dyn Write>,
}

impl Request<'_> {
    /// Writes one line for people to stderr. A log that cannot be written is
    /// no reason to fail.
    pub fn log(&self, line: impl fmt::Display) {
        let _ = writeln!(self.log.borrow_mut(), "{line}");
    }
}

/// A plugin: its verbs. VERSION is answered by [`run`].
pub trait Plugin {
    /// Attaches a container.
    ///
    /// # Errors
    /// After having undone all that it did.
    fn add(&mut self, request: &Request<'_>, target: &Target) -> Result<AddResult, CniError>;

    /// Detaches a container; nothing left to do is success.
    ///
    /// # Errors
    /// After having done all that could be done.
    fn del(
        &mut self,
        request: &Request<'_>,
        target: &Target<Option<String>>,
    ) -> Result<(), CniError>;

    /// Compares an attachment with what ADD answered.
    ///
    /// # Errors
    /// Naming all that differs.
    fn check(&mut self, request: &Request<'_>, target: &Target) -> Result<(), CniError>;

    /// Says whether an ADD could be served.
    ///
    /// # Errors
    /// With the reason why not.
    fn status(&mut self, request: &Request<'_>) -> Result<(), CniError>;

    /// Frees what no listed attachment uses.
    ///
    /// # Errors
    /// After having freed all that could be freed.
    fn gc(&mut self, request: &Request<'_>) -> Result<(), CniError>;
}

/// Serves one call and gives the exit code: 0, or 1 after an error document.
///
/// A panic of the plugin is caught and answered as code 999 with its message;
/// the standard hook has written its place to stderr by then.
pub fn run(edges: Edges<'_>, plugin: &mut dyn Plugin) -> u8 {
    let Edges {
        env,
        stdin,
        stdout,
        stderr,
    } = edges;
    let mut spoken = CniVersion::LATEST;
    let answered = catch_unwind(AssertUnwindSafe(|| {
        answer(env, stdin, stderr, plugin, &mut spoken)
    }));
    let outcome = answered.unwrap_or_else(|panic| {
        Err(
            CniError::new(Code::Internal, "a bug in the plugin: it panicked")
                .details(panic_message(panic.as_ref())),
        )
    });
    let (document, exit) = match outcome {
        Ok(document) => (document, 0),
        Err(error) => (Some(error.document(spoken)), 1),
    };
    let Some(document) = document else {
        return exit;
    };
    // One write: a reader never sees half a document followed by another.
    let text = format!("{document:#}\n");
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        Ok(()) => exit,
        Err(error) => {
            let _ = writeln!(stderr, "cannot write the answer to stdout: {error}");
            1
        }
    }
}

fn answer(
    env: &dyn Environment,
    stdin: &mut dyn Read,
    stderr: &mut dyn Write,
    plugin: &mut dyn Plugin,
    spoken: &mut CniVersion,
) -> Result<Option<Value>, CniError> {
    let command = call::command(env)?;
    let input = read_bounded(stdin);
    if command == Command::Version {
        let asked = input.ok().and_then(|bytes| config::version_of(&bytes));
        return Ok(Some(version_document(asked)));
    }
    let config = Config::parse(input?, spoken)?;
    if config.version < command.since() {
        return Err(CniError::new(
            Code::IncompatibleVersion,
            format!(
                "{} is not part of CNI {}: it came with {}",
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
    let network = &request.config.network;
    match command {
        Command::Add => {
            let target = call::target(env, network, command)?;
            let result = plugin.add(&request, &target)?;
            return Ok(Some(result.document(request.config.version)));
        }
        Command::Del => plugin.del(&request, &call::del_target(env, network)?)?,
        Command::Check => plugin.check(&request, &call::target(env, network, command)?)?,
        Command::Status => plugin.status(&request)?,
        Command::Gc => plugin.gc(&request)?,
        Command::Version => {}
    }
    Ok(None)
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
