//! A call of the plugin: its environment and stdin, without the kernel and the store.
//!
//! Input: the variables as lines `NAME=VALUE`, an empty line, stdin.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;

use serde_json::Value;
use tweed_cni::{AddResult, CniError, CniVersion, Invocation, Plugin, Request, Target};
use tweed_cni_plugin::config::{Place, Settings, unknown_keys};
use tweed_ipam::ranges::{IpamConfig, RangeSet};

/// How many addresses of a range set are looked at.
const CANDIDATES: usize = 20;

/// Exactly one JSON document answers a call, never that of a bug; a result that is
/// written is read back the same; addresses are given out of their ranges, each once.
pub fn check(input: &[u8]) {
    let end = input.windows(2).position(|pair| pair == b"\n\n");
    let (variables, stdin) = match end {
        Some(end) => (&input[..end], &input[end + 2..]),
        None => (input, &[][..]),
    };
    let env = |name: &str| {
        let mut lines = variables.split(|byte| *byte == b'\n');
        lines.find_map(|line| {
            let value = line.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
            Some(OsString::from_vec(value.to_vec()))
        })
    };
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let invocation = Invocation {
        env: &env,
        stdin: &mut &*stdin,
        stdout: &mut stdout,
        stderr: &mut stderr,
    };
    let code = tweed_cni::run(invocation, &mut Reader);
    if stdout.is_empty() {
        assert_eq!(code, 0, "an error without a document");
        return;
    }
    let document: Value = serde_json::from_slice(&stdout).expect("one JSON document");
    let found = document["cniVersion"].as_str().and_then(CniVersion::find);
    let version = found.expect("the document has a supported version");
    if code != 0 {
        assert!(document["msg"].is_string(), "{document}");
        assert_ne!(document["code"], 999, "a bug: {document}");
    } else if document.get("supportedVersions").is_none() {
        let result = AddResult::from_document(&stdout).expect("a result is read back");
        assert_eq!(result.document(version), document);
    }
}

/// A plugin that reads what each verb of the real one reads, and does nothing.
struct Reader;

impl Plugin for Reader {
    fn add(&mut self, request: &Request<'_>, target: &Target) -> Result<AddResult, CniError> {
        let config = &request.config;
        unknown_keys(config).for_each(drop);
        Settings::read(config)?;
        let ip_ranges = config.runtime_config()?.ip_ranges;
        let ipam =
            IpamConfig::parse(&config.ipam()?, ip_ranges.as_ref()).map_err(CniError::config)?;
        ipam.ranges.iter().for_each(check_set);
        config.requested_ips(&target.args)?;
        assert_eq!(target.attachment.id().len(), 64);
        let mut result = config.prev_result()?.unwrap_or_default();
        result.dns = config.dns()?;
        result.routes.extend(ipam.routes);
        Ok(result)
    }

    fn del(&mut self, request: &Request<'_>, _: &Target) -> Result<(), CniError> {
        Place::read(&request.config)?;
        request.config.prev_result()?;
        Ok(())
    }

    fn check(&mut self, request: &Request<'_>, _: &Target) -> Result<(), CniError> {
        Settings::read(&request.config)?;
        request.config.prev_result()?;
        Ok(())
    }

    fn status(&mut self, request: &Request<'_>) -> Result<(), CniError> {
        Settings::read(&request.config)?;
        Ok(())
    }

    fn gc(&mut self, request: &Request<'_>) -> Result<(), CniError> {
        Place::read(&request.config)?;
        request.config.valid_attachments()?;
        Ok(())
    }
}

fn check_set(set: &RangeSet) {
    let given: Vec<_> = set.candidates(None).take(CANDIDATES).collect();
    let expected = usize::try_from(set.capacity()).unwrap_or(usize::MAX);
    assert_eq!(given.len(), expected.min(CANDIDATES), "{set}");
    for (place, address) in given.iter().enumerate() {
        assert!(set.can_give(*address), "{address} of {set}");
        assert!(!given[..place].contains(address), "{address} of {set}");
        // What comes next is not given again at once.
        let next = set.candidates(Some(*address)).next();
        assert!(
            next != Some(*address) || expected == 1,
            "{address} of {set}"
        );
    }
}
