//! The plugin, and what several verbs do in the same way.

use tweed_cni::{CniError, Command, Request};
use tweed_ipam::record::Record;

use crate::config::Ipam;
use crate::datapath::Datapath;
use crate::delegate::{Call, Delegate};

/// The `tweed` plugin, over a datapath and other IPAM plugins.
#[derive(Debug)]
pub struct Tweed<P, D> {
    pub(crate) datapath: P,
    pub(crate) delegate: D,
}

impl<P: Datapath, D: Delegate> Tweed<P, D> {
    /// Tests pass a datapath over another kernel, or other plugins.
    pub fn new(datapath: P, delegate: D) -> Self {
        Self { datapath, delegate }
    }

    /// Forwards a verb without a result to the delegated IPAM plugin, if there is one.
    ///
    /// # Errors
    /// The plugin's own, or code 106.
    pub(crate) fn forward(
        &mut self,
        command: Command,
        ipam: &Ipam,
        request: &Request<'_>,
    ) -> Result<(), CniError> {
        self.call_delegate(command, ipam, request, None)
    }

    /// Has the IPAM plugin that gave the addresses of `record` take them back, by a DEL
    /// of its attachment.
    ///
    /// # Errors
    /// As [`Tweed::forward`].
    pub(crate) fn release(
        &mut self,
        ipam: &Ipam,
        request: &Request<'_>,
        record: &Record,
    ) -> Result<(), CniError> {
        warn_of_other_ipam(ipam, request, record);
        self.call_delegate(Command::Del, ipam, request, Some(record))
    }

    fn call_delegate(
        &mut self,
        command: Command,
        ipam: &Ipam,
        request: &Request<'_>,
        of: Option<&Record>,
    ) -> Result<(), CniError> {
        let Ipam::Delegated(plugin) = ipam else {
            return Ok(());
        };
        let call = Call {
            command,
            plugin,
            cni_path: &request.cni_path,
            config: request.config.bytes(),
            of,
        };
        self.delegate.call(call)?;
        Ok(())
    }
}

/// Another IPAM plugin gave the addresses of `record` than the config names by now.
pub(crate) fn warn_of_other_ipam(ipam: &Ipam, request: &Request<'_>, record: &Record) {
    let is_this = |given_by: &String| matches!(ipam, Ipam::Delegated(plugin) if plugin == given_by);
    if let Some(given_by) = record.ipam.as_ref().filter(|given_by| !is_this(given_by)) {
        let (attachment, addresses) = (record.attachment(), &record.addresses);
        request.log(format_args!(
            "warning: {given_by}, which the config no longer names, gave {addresses:?} to \
             {attachment}, and may keep them"
        ));
    }
}
