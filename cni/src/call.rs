//! The environment of a call: the verb, the attachment, the extra arguments.

use std::{ffi::OsString, net::IpAddr, path::PathBuf};

use crate::error::{CniError, Code};
use crate::version::CniVersion;
use tweed_core::attachment::{Attachment, ContainerId, IfName, NetworkName};
use tweed_core::name::InvalidName;
use tweed_core::{attachment::PodName, mac::Mac};

/// The verb: `CNI_COMMAND`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Attach a container to the network.
    Add,
    /// Detach it.
    Del,
    /// Compare an attachment with the result of its ADD.
    Check,
    /// Return whether an ADD could be served.
    Status,
    /// Free what no listed attachment uses.
    Gc,
    /// Return the supported versions.
    Version,
}

impl Command {
    const ALL: [Self; 6] = [
        Self::Add,
        Self::Del,
        Self::Check,
        Self::Status,
        Self::Gc,
        Self::Version,
    ];

    /// The verb as in `CNI_COMMAND`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Add => "ADD",
            Self::Del => "DEL",
            Self::Check => "CHECK",
            Self::Status => "STATUS",
            Self::Gc => "GC",
            Self::Version => "VERSION",
        }
    }

    /// The version of the specification that introduced the verb.
    #[must_use]
    pub fn since(self) -> CniVersion {
        match self {
            Self::Add | Self::Del | Self::Version => CniVersion::V0_3_1,
            Self::Check => CniVersion::V0_4_0,
            Self::Status | Self::Gc => CniVersion::V1_1_0,
        }
    }
}

/// Where variables come from: the process's environment, or a table of a test.
pub type Environment<'a> = dyn Fn(&str) -> Option<OsString> + 'a;

/// What a verb of an attachment works on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Network, container and interface.
    pub attachment: Attachment,
    /// `CNI_NETNS`; only a DEL may have an empty one.
    pub netns: String,
    /// `CNI_ARGS`; parsed for ADD only, empty for the other verbs.
    pub args: CniArgs,
}

/// Maximum length of a pod's name and of its namespace's, in bytes: that of a DNS name.
const POD_NAME_MAX: usize = 253;

/// `CNI_ARGS`: `KEY=VALUE` pairs, separated by `;`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CniArgs {
    /// `K8S_POD_NAMESPACE` and `K8S_POD_NAME`, where both are given.
    pub pod: Option<PodName>,
    /// `K8S_POD_UID`.
    pub pod_uid: Option<String>,
    /// `IP`: requested addresses, with or without prefix length, separated by `,`.
    pub ips: Vec<IpAddr>,
    /// `MAC`: the requested MAC of the pod's end.
    pub mac: Option<Mac>,
}

impl CniArgs {
    /// Unknown keys are an error unless `IgnoreUnknown` is set, as in libcni.
    fn parse(text: &str) -> Result<Self, String> {
        let mut args = Self::default();
        let (mut namespace, mut name) = (None, None);
        let mut unknown = Vec::new();
        let mut ignore_unknown = false;
        for pair in text.split(';').filter(|pair| !pair.trim().is_empty()) {
            let (key, value) = pair
                .split_once('=')
                .ok_or_else(|| format!("CNI_ARGS: {pair:?} is not KEY=VALUE"))?;
            match key {
                "IgnoreUnknown" => {
                    ignore_unknown = match value.to_ascii_lowercase().as_str() {
                        "1" | "true" => true,
                        "0" | "false" => false,
                        _ => return Err(format!("CNI_ARGS: {pair:?} is neither true nor false")),
                    }
                }
                "K8S_POD_NAMESPACE" => namespace = Some(pod_name(key, value)?),
                "K8S_POD_NAME" => name = Some(pod_name(key, value)?),
                "K8S_POD_INFRA_CONTAINER_ID" => {}
                // Too long for a UID, it is none, over which no ADD should fail.
                "K8S_POD_UID" => {
                    let is_uid = !value.is_empty() && value.len() <= POD_NAME_MAX;
                    args.pod_uid = is_uid.then(|| value.to_owned());
                }
                "IP" => {
                    for ip in value.split(',').filter(|ip| !ip.is_empty()) {
                        args.ips
                            .push(parse_ip(ip).map_err(|e| format!("CNI_ARGS: IP: {e}"))?);
                    }
                }
                // As an empty capability `mac`: any will do.
                "MAC" if value.is_empty() => {}
                "MAC" => {
                    let mac = Mac::parse_unicast(value);
                    args.mac = Some(mac.map_err(|e| format!("CNI_ARGS: MAC: {e}"))?);
                }
                _ => unknown.push(key),
            }
        }
        if !unknown.is_empty() && !ignore_unknown {
            return Err(format!(
                "CNI_ARGS: unknown {} (with IgnoreUnknown=1 they are ignored)",
                unknown.join(", ")
            ));
        }
        if let (Some(namespace), Some(name)) = (namespace, name) {
            args.pod = Some(PodName { namespace, name });
        }
        Ok(args)
    }
}

/// A name that Kubernetes could give: a longer one would make the attachment's record
/// too large to be read.
fn pod_name(key: &str, value: &str) -> Result<String, String> {
    if value.len() > POD_NAME_MAX {
        let length = value.len();
        return Err(format!(
            "CNI_ARGS: {key} has {length} bytes: it may have {POD_NAME_MAX}"
        ));
    }
    Ok(value.to_owned())
}

/// Parses an address with or without a prefix length, which is dropped.
pub(super) fn parse_ip(text: &str) -> Result<IpAddr, String> {
    let address = match text.split_once('/') {
        Some((address, length)) if length.parse::<u8>().is_ok() => address,
        _ => text,
    };
    address
        .trim()
        .parse()
        .map_err(|_| format!("{text:?} is not an IP address"))
}

/// The verb of this call.
///
/// # Errors
/// Code 4 if `CNI_COMMAND` is missing or unknown.
pub(super) fn command(env: &Environment<'_>) -> Result<Command, CniError> {
    let known = || Command::ALL.map(Command::as_str).join(", ");
    let invalid = |problem: String| CniError::new(Code::InvalidEnvironment, problem);
    let Some(text) = variable(env, "CNI_COMMAND").map_err(invalid)? else {
        let usage = "this is a CNI plugin; a container runtime calls it with one of";
        let missing = invalid("CNI_COMMAND is missing".to_owned());
        return Err(missing.details(format!("{usage} {}", known())));
    };
    let found = Command::ALL
        .into_iter()
        .find(|command| command.as_str() == text);
    found.ok_or_else(|| {
        invalid(format!("CNI_COMMAND {text:?} is unknown"))
            .details(format!("the verbs are {}", known()))
    })
}

/// The folders of `CNI_PATH`, in which other plugins are searched.
pub(super) fn cni_path(env: &Environment<'_>) -> Vec<PathBuf> {
    let path = env("CNI_PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .filter(|folder| !folder.as_os_str().is_empty())
        .collect()
}

/// Reads the variables of an attachment; the error names all that are wrong.
pub(super) fn target(
    env: &Environment<'_>,
    network: &NetworkName,
    command: Command,
) -> Result<Target, CniError> {
    let mut problems = Vec::new();
    let container_id = name(env, "CNI_CONTAINERID", ContainerId::new, &mut problems);
    let ifname = name(env, "CNI_IFNAME", IfName::new, &mut problems);
    let checked = match variable(env, "CNI_NETNS") {
        Ok(None) if command == Command::Del => Ok(String::new()),
        netns => netns.and_then(|netns| netns.ok_or_else(|| "CNI_NETNS is missing".to_owned())),
    };
    let netns = checked.map_err(|problem| problems.push(problem)).ok();
    // Only ADD uses them, and a DEL must not fail over what it does not need.
    let args = if command == Command::Add {
        variable(env, "CNI_ARGS")
            .and_then(|text| CniArgs::parse(&text.unwrap_or_default()))
            .map_err(|problem| problems.push(problem))
            .unwrap_or_default()
    } else {
        CniArgs::default()
    };
    match (container_id, ifname, netns) {
        (Some(container_id), Some(ifname), Some(netns)) if problems.is_empty() => Ok(Target {
            attachment: Attachment {
                network: network.clone(),
                container_id,
                ifname,
            },
            netns,
            args,
        }),
        _ => Err(CniError::new(Code::InvalidEnvironment, problems.join("; "))),
    }
}

fn name<T>(
    env: &Environment<'_>,
    variable_name: &str,
    check: impl Fn(String) -> Result<T, InvalidName>,
    problems: &mut Vec<String>,
) -> Option<T> {
    let checked = match variable(env, variable_name) {
        Ok(Some(text)) => check(text).map_err(|error| format!("{variable_name}: {error}")),
        Ok(None) => Err(format!("{variable_name} is missing")),
        Err(problem) => Err(problem),
    };
    checked.map_err(|problem| problems.push(problem)).ok()
}

/// A variable as text. An empty one counts as missing, as in the reference.
fn variable(env: &Environment<'_>, name: &str) -> Result<Option<String>, String> {
    match env(name).map(OsString::into_string) {
        None => Ok(None),
        Some(Ok(text)) if text.is_empty() => Ok(None),
        Some(Ok(text)) => Ok(Some(text)),
        Some(Err(bytes)) => Err(format!("{name} {bytes:?} is not UTF-8")),
    }
}

#[cfg(test)]
mod tests;
