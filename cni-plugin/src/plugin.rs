//! The plugin: dispatch of the verbs, and what several verbs do in the same way.

use std::{net::IpAddr, path::Path};

use tweed_cni::{AddResult, CniError, Command, Plugin, Request, Target};
use tweed_core::{attachment::Attachment, ownership::alias_key};
use tweed_ipam::record::Record;
use tweed_netlink::{link::Link, owned::is_leaving_link};

use crate::config::{Ipam, unknown_keys};
use crate::datapath::veth::{Kernel, ownership, refused};
use crate::delegate::{Call, Delegate};
use crate::verbs::{add, check, del, gc, status};

/// The `tweed` plugin, over the kernel and other IPAM plugins.
#[derive(Debug)]
pub struct Tweed<K, D> {
    pub(crate) kernel: K,
    pub(crate) delegate: D,
}

impl<K: Kernel, D: Delegate> Tweed<K, D> {
    /// Tests pass another kernel or other plugins.
    #[must_use]
    pub fn new(kernel: K, delegate: D) -> Self {
        Self { kernel, delegate }
    }

    /// Deletes the attachment's pair of links, with its routes and neighbours, and
    /// waits until that is done. No link is a success; a link that has the name but
    /// belongs to somebody else is left alone.
    pub(crate) fn detach(
        &mut self,
        request: &Request<'_>,
        attachment: &Attachment,
    ) -> Result<(), CniError> {
        match self.own_link(request, attachment)? {
            Some(link) => self.kernel.delete_host_link(&link).map_err(refused),
            None => Ok(()),
        }
    }

    /// As [`Tweed::detach`], but the link is only put out of use. Returns whether
    /// there is one to be deleted by [`Kernel::delete_leaving_later`].
    pub(crate) fn mark_leaving(
        &mut self,
        request: &Request<'_>,
        target: &Target,
    ) -> Result<bool, CniError> {
        let attachment = &target.attachment;
        let name = ownership::leaving_name(attachment);
        let link = match self.own_link(request, attachment)? {
            Some(link) => {
                let alias = alias_key(attachment);
                let marked = self.kernel.mark_leaving(&link, &name, &alias);
                marked.map_err(refused)?;
                Some(link)
            }
            // An earlier DEL may have been killed after it marked the link.
            None => {
                let marked = self.kernel.host_link(&name).map_err(refused)?;
                marked.filter(is_leaving_link)
            }
        };
        if let Some(link) = &link {
            self.free_name_in_pod(request, target, link, &name);
        }
        Ok(link.is_some())
    }

    /// Frees the name that a leaving link has in its pod, where the pod's namespace is
    /// still there. No DEL fails over this: the link is out of use, and its name is
    /// free within a second in any case.
    fn free_name_in_pod(
        &mut self,
        request: &Request<'_>,
        target: &Target,
        link: &Link,
        name: &str,
    ) {
        let netns = Path::new(&target.netns);
        if target.netns.is_empty() || self.kernel.open_pod(netns).is_err() {
            return;
        }
        let ifname = target.attachment.ifname.as_str();
        if let Err(error) = self.kernel.rename_pod_end(ifname, link, name) {
            request.log(format_args!(
                "warning: {ifname} keeps its name for a moment: {error}"
            ));
        }
    }

    /// The attachment's host end, if the link of that name is its own.
    fn own_link(
        &mut self,
        request: &Request<'_>,
        attachment: &Attachment,
    ) -> Result<Option<Link>, CniError> {
        let name = attachment.link_name();
        let found = self.kernel.host_link(&name).map_err(refused)?;
        if let Some(link) = &found
            && !ownership::belongs(link, attachment)
        {
            request.log(format_args!(
                "warning: link {name} does not belong to {attachment} (group {}, alias {:?}): left alone",
                link.group,
                link.alias.as_deref().unwrap_or_default()
            ));
            return Ok(None);
        }
        Ok(found)
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

    /// Which link or route already has `ip`, as text for an error.
    pub(crate) fn holder_of(&mut self, ip: IpAddr) -> String {
        let Ok(routes) = self.kernel.host_routes_to(ip) else {
            return format!("a route to {ip} already exists");
        };
        let holders: Vec<String> = routes
            .into_iter()
            .map(|(route, link)| match link {
                Some(link) => match link.alias {
                    Some(alias) => format!("link {} ({alias})", link.name),
                    None => format!("link {}", link.name),
                },
                None => format!("route {route}"),
            })
            .collect();
        format!("{ip} is already routed to {}", holders.join(" and "))
    }
}

impl<K: Kernel, D: Delegate> Plugin for Tweed<K, D> {
    fn add(&mut self, request: &Request<'_>, target: &Target) -> Result<AddResult, CniError> {
        warn_of_unknown_keys(request);
        add::add(self, request, target)
    }

    fn del(&mut self, request: &Request<'_>, target: &Target) -> Result<(), CniError> {
        del::del(self, request, target)
    }

    fn check(&mut self, request: &Request<'_>, target: &Target) -> Result<(), CniError> {
        check::check(self, request, target)
    }

    fn status(&mut self, request: &Request<'_>) -> Result<(), CniError> {
        warn_of_unknown_keys(request);
        status::status(self, request)
    }

    fn gc(&mut self, request: &Request<'_>) -> Result<(), CniError> {
        gc::gc(self, request)
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

fn warn_of_unknown_keys(request: &Request<'_>) {
    for key in unknown_keys(&request.config) {
        request.log(format_args!("warning: unknown key {key} is ignored"));
    }
}
