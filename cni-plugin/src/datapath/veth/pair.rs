//! What the verbs ask of a datapath, as a pair of links.

use std::collections::{BTreeSet, HashSet};
use std::{net::IpAddr, path::Path};

use tweed_cni::{CniError, Code, Interface, Request, Route, Target};
use tweed_core::attachment::{Attachment, NetworkName};
use tweed_core::ownership::alias_key;
use tweed_core::sysctl::forwarding_of;
use tweed_core::{family::Family, mac::Mac, netns};
use tweed_ipam::record::Record;
use tweed_netlink::owned::{is_leaving_link, is_renamed_link_of};
use tweed_netlink::{Error, link::Link};

use super::plan::{self, Desired, Side, Step};
use super::{Applied, Failed, Kernel, Observed, Veth, check, ownership, refused};
use crate::datapath::{Attached, Datapath, Expected, Wanted};
use crate::not_done::NotDone;

impl<K: Kernel> Datapath for Veth<K> {
    type Observed = Observed;

    fn gateway_of(&self, address: IpAddr) -> IpAddr {
        plan::gateway_of(address)
    }

    fn host_end(&self, attachment: &Attachment) -> Option<(String, Mac)> {
        Some((attachment.link_name(), attachment.host_mac()))
    }

    fn accepts(&self, mtu: u32, routes: &[Route], node: &[IpAddr]) -> Result<(), CniError> {
        plan::check_next_hops(routes, node)?;
        plan::check_mtu(mtu, node.iter().any(IpAddr::is_ipv6))
    }

    fn open_pod(&mut self, netns: &Path) -> Result<(), CniError> {
        self.kernel.open_pod(netns)
    }

    fn attach(&mut self, request: &Request<'_>, wanted: &Wanted<'_>) -> Result<Attached, NotDone> {
        let settings = wanted.settings;
        plan::check_next_hops(wanted.routes, wanted.node).map_err(NotDone::before_start)?;
        for part in plan::unsupported(wanted.routes) {
            request.log(format_args!("warning: {part} is not supported: ignored"));
        }
        let mut routes = plan::pod_routes(wanted.addresses, wanted.routes, settings.default_route);
        let steps = plan::plan(&Desired {
            attachment: &wanted.target.attachment,
            pod: wanted.target.args.pod.as_ref(),
            pod_mac: wanted.pod_mac,
            mtu: settings.mtu,
            addresses: wanted.addresses,
            routes: &routes,
            host_source: &settings.host_source,
        })
        .map_err(NotDone::before_start)?;
        let applied = self.build(request, &steps)?;
        // Where there is an agent, which writes `readyFile`, it has done so.
        if settings.ready_file.is_none() {
            let forwarded = self.forward(request, wanted.addresses);
            forwarded.map_err(NotDone::after_start)?;
        }
        routes.retain(|it| !(it.is_implied && applied.left_out.contains(&it.route.dst)));
        Ok(Attached {
            interfaces: interfaces(wanted),
            routes: routes.into_iter().map(|it| it.route).collect(),
            unwritten: applied.unwritten.iter().map(ToString::to_string).collect(),
        })
    }

    fn detach(&mut self, request: &Request<'_>, attachment: &Attachment) -> Result<(), CniError> {
        match self.own_link(request, attachment)? {
            Some(link) => self.kernel.delete_host_link(&link).map_err(refused),
            None => Ok(()),
        }
    }

    fn detach_named(&mut self, name: &str) -> Result<(), CniError> {
        match self.kernel.host_link(name).map_err(refused)? {
            Some(link) if ownership::is_named(&link, name) => {
                self.kernel.delete_host_link(&link).map_err(refused)
            }
            _ => Ok(()),
        }
    }

    fn mark_leaving(&mut self, request: &Request<'_>, target: &Target) -> Result<bool, CniError> {
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

    fn delete_leaving(&mut self) -> Result<(), CniError> {
        self.kernel.delete_leaving().map_err(refused)
    }

    fn delete_leaving_later(&mut self, folder: &Path) -> Result<(), CniError> {
        self.kernel.delete_leaving_later(folder).map_err(refused)
    }

    fn observe(&mut self, target: &Target) -> Result<Observed, CniError> {
        self.kernel.open_pod(target.netns.as_ref())?;
        let attachment = &target.attachment;
        let ends = (attachment.link_name(), attachment.ifname.as_str());
        self.kernel.observe(&ends.0, ends.1).map_err(refused)
    }

    fn check(
        &self,
        expected: &Expected<'_>,
        addresses: &[IpAddr],
        observed: &Observed,
    ) -> Vec<String> {
        check::differences(expected, addresses, observed)
    }

    /// Also under another name. The kernel is asked for each record, while the store is
    /// locked: an older list of links would lack those of ADDs that have ended since.
    fn is_gone(&mut self, record: &Record) -> bool {
        let is_own = |netns| netns::own().is_ok_and(|own| own == netns);
        let link = record.link.as_deref();
        record.host_netns.is_none_or(is_own)
            && link.is_some_and(|name| matches!(self.kernel.host_link(name), Ok(None)))
            && self.kernel.host_links().is_ok_and(|links| {
                let attachment = record.attachment();
                let is_renamed = |link: &Link| is_renamed_link_of(link, &attachment);
                !links.iter().any(is_renamed)
            })
    }

    fn sweep(
        &mut self,
        network: &NetworkName,
        kept: impl FnOnce() -> Result<HashSet<String>, CniError>,
    ) -> Result<Vec<CniError>, CniError> {
        let links = self.kernel.host_links().map_err(refused)?;
        let kept = kept()?;
        let deleted =
            unrecorded(&links, network, &kept).map(|link| self.kernel.delete_host_link(link));
        Ok(deleted.filter_map(Result::err).map(refused).collect())
    }

    fn forget_enforcement(&mut self, address: IpAddr) -> Result<(), Error> {
        self.kernel.forget_enforcement(address)
    }
}

impl<K: Kernel> Veth<K> {
    fn build(&mut self, request: &Request<'_>, steps: &[Step]) -> Result<Applied, NotDone> {
        let failed = match self.kernel.apply(steps) {
            Ok(applied) => {
                for warning in &applied.warnings {
                    request.log(format_args!("warning: {warning}"));
                }
                return Ok(applied);
            }
            Err(failed) => failed,
        };
        // A pair that existed before this ADD must not be deleted by it.
        let is_of_others =
            steps.get(failed.step).is_some_and(Step::needs_undo) && failed.error.is_present();
        Err(NotDone {
            needs_undo: !is_of_others,
            error: self.explain(steps, failed),
        })
    }

    /// Switches the node's forwarding on for the families of these addresses. This comes
    /// last, as it is not undone: other pods may need it by then.
    fn forward(&mut self, request: &Request<'_>, addresses: &[IpAddr]) -> Result<(), CniError> {
        let families: BTreeSet<Family> = addresses.iter().copied().map(Family::of).collect();
        for family in families {
            let enabled = self.kernel.enable_forwarding(family);
            if enabled.map_err(|error| not_forwarding(family, error))? {
                request.log(format_args!(
                    "{family} forwarding of this node was off: switched on"
                ));
            }
        }
        Ok(())
    }

    fn explain(&mut self, steps: &[Step], failed: Failed) -> CniError {
        let is_present = failed.error.is_present();
        let error = refused(failed.error);
        match steps.get(failed.step) {
            Some(Step::CreatePair { host, pod }) if is_present => {
                let in_pod = self.kernel.pod_has_link(&pod.name).unwrap_or(true);
                let problem = if in_pod {
                    format!("interface {} exists already in the container", pod.name)
                } else {
                    format!("link {} exists already on the host", host.name)
                };
                CniError::new(Code::InterfaceExists, problem)
                    .details("it was left as it is; an ADD needs a DEL before it")
            }
            Some(Step::Route(Side::Host, route)) if is_present => {
                error.details(self.holder_of(route.destination.ip()))
            }
            Some(Step::Route(Side::Pod, _)) if is_present => error.details(
                "another network of the container has that route: leave it out of ipam.routes \
                 (for a default route: \"defaultRoute\": false), or give it another priority",
            ),
            Some(Step::Route(Side::Host, route)) if route.source.is_some() => {
                let source = route.source.map(|ip| ip.to_string()).unwrap_or_default();
                error.details(format!(
                    "its source is {source}, from hostSource: is that an address of this node?"
                ))
            }
            _ => error,
        }
    }

    /// Which link or route already has `ip`, as text for an error.
    fn holder_of(&mut self, ip: IpAddr) -> String {
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
}

/// Both ends, as they stand in the result.
fn interfaces(wanted: &Wanted<'_>) -> Vec<Interface> {
    let attachment = &wanted.target.attachment;
    let host = Interface {
        name: attachment.link_name(),
        mac: Some(attachment.host_mac().to_string()),
        mtu: Some(wanted.settings.mtu),
        ..Interface::default()
    };
    let pod = Interface {
        name: attachment.ifname.to_string(),
        mac: Some(wanted.pod_mac.to_string()),
        mtu: Some(wanted.settings.mtu),
        sandbox: Some(wanted.target.netns.clone()),
        ..Interface::default()
    };
    vec![host, pod]
}

fn not_forwarding(family: Family, error: Error) -> CniError {
    let refused = refused(error);
    let switch = forwarding_of(family).replace('/', ".");
    CniError {
        msg: format!("{family} forwarding of this node is off: it would drop what the pod sends"),
        details: format!("{}; set {switch}=1 on the node", refused.msg),
        ..refused
    }
}

/// Links of the network that have no record, as after somebody deleted the store.
fn unrecorded<'a>(
    links: &'a [Link],
    network: &'a NetworkName,
    kept: &'a HashSet<String>,
) -> impl Iterator<Item = &'a Link> {
    links
        .iter()
        .filter(move |link| ownership::is_of_network(link, network) && !kept.contains(&link.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_links_of_the_network_without_a_record_are_deleted() {
        let network = NetworkName::new("tweed").unwrap();
        let link = |name: &str, alias: &str| Link {
            name: name.to_owned(),
            group: tweed_core::ownership::LINK_GROUP,
            alias: Some(alias.to_owned()),
            ..Link::default()
        };
        let links = [
            link("tw000000000001", "tweed:tweed/a/eth0"),
            link("tw000000000002", "tweed:tweed/b/eth0"),
            link("tw000000000003", "tweed:other/c/eth0"),
            link("eth1", "tweed:tweed/d/eth0"),
        ];
        let kept = HashSet::from(["tw000000000002".to_owned()]);
        let names: Vec<_> = unrecorded(&links, &network, &kept)
            .map(|link| &link.name)
            .collect();
        assert_eq!(names, ["tw000000000001"]);
    }
}
