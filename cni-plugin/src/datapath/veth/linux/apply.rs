//! Carrying out the steps of a plan.
//!
//! Neighbouring steps that go the same way are carried out together: settings are
//! files, one namespace visit for all of them; everything else is a netlink
//! message, one batch for all of them.

use std::os::fd::AsFd;

use nix::errno::Errno;
use tweed_netlink::link::{self, VethEnd};
use tweed_netlink::{Error, Request, Socket, address, neighbour, owned, route};

use super::settings::Unwritten;
use super::{End, Failed, LinuxKernel, Pair, not_found, other_network, settings};
use crate::datapath::veth::Applied;
use crate::datapath::veth::plan::{Side, Step};

/// How a step is carried out.
#[derive(Clone, Copy, PartialEq)]
enum Method<'s> {
    Create(&'s VethEnd, &'s VethEnd),
    File(Side),
    Message(Side),
}

fn method(step: &Step) -> Method<'_> {
    match step {
        Step::CreatePair { host, pod } => Method::Create(host, pod),
        Step::SwitchOff(side, _) => Method::File(*side),
        Step::Address(_) | Step::GatewayRoute(_) | Step::ImpliedDefault(_) => {
            Method::Message(Side::Pod)
        }
        // A query of the pod's end is sent from the host too.
        Step::Ipv4Gateway | Step::QueryCarrier(_) => Method::Message(Side::Host),
        Step::NoLinkLocal(side)
        | Step::Up(side, _)
        | Step::Neighbour(side, ..)
        | Step::Route(side, _) => Method::Message(*side),
    }
}

fn at_first(error: Error) -> Failed {
    Failed { step: 0, error }
}

impl LinuxKernel {
    /// As [`Kernel::apply`](crate::datapath::veth::Kernel::apply).
    pub(super) fn apply_steps(&mut self, steps: &[Step]) -> Result<Applied, Failed> {
        let mut applied = Applied::default();
        let mut done = 0;
        while let Some(first) = steps.get(done) {
            let method_of_group = method(first);
            let rest = &steps[done..];
            let length = rest
                .iter()
                .take_while(|step| method(step) == method_of_group)
                .count();
            let group = &rest[..length];
            match method_of_group {
                Method::Create(host, pod) => self.create(host, pod).map_err(at_first),
                Method::File(side) => self.set(side, group, &mut applied),
                Method::Message(side) => self.send(side, group, &mut applied),
            }
            .map_err(|failed| Failed {
                step: done + failed.step,
                error: failed.error,
            })?;
            done += length;
        }
        Ok(applied)
    }

    fn create(&mut self, host: &VethEnd, pod: &VethEnd) -> Result<(), Error> {
        let request = link::create_veth(host, pod, self.pod()?.netns.as_fd());
        let answer = match link::create(self.host()?, &request) {
            Err(error) if error.is_present() && self.free_name_in_pod(&pod.name)? => {
                link::create(self.host()?, &request)
            }
            answer => answer,
        };
        let created = match answer? {
            Some(link) => Some(link),
            None => link::by_name(self.host()?, &host.name)?,
        };
        let numbers = created.and_then(|link| Some((link.index, link.peer?, link.peer_netns?)));
        let (host_index, pod_index, pod_netns) =
            numbers.ok_or_else(|| not_found("look at the pair of", &host.name))?;
        self.pair = Some(Pair {
            host: End {
                index: host_index,
                name: host.name.clone(),
            },
            pod: End {
                index: pod_index,
                name: pod.name.clone(),
            },
            pod_netns,
        });
        Ok(())
    }

    /// Frees the name of a new pod end where the end of a leaving link still has
    /// it: its DEL has returned, but the links are not deleted yet. Returns whether
    /// it is worth trying again to create the pair.
    fn free_name_in_pod(&mut self, name: &str) -> Result<bool, Error> {
        let Some(old) = link::by_name(&mut self.pod()?.socket, name)? else {
            // Deleted by now.
            return Ok(true);
        };
        let Some(peer) = old.peer else {
            return Ok(false);
        };
        let Some(host_end) = link::by_index(self.host()?, peer)? else {
            return Ok(true);
        };
        if !owned::is_leaving_link(&host_end) {
            return Ok(false);
        }
        if !self.is_pair(&host_end, &old)? {
            // Deleted after it was found, or the end of somebody else's pair.
            let left = link::by_index(&mut self.pod()?.socket, old.index)?;
            return Ok(left.is_none());
        }
        self.put_aside(&old, &host_end, &host_end.name)?;
        Ok(true)
    }

    /// Writes the settings of one side.
    fn set(&mut self, side: Side, steps: &[Step], applied: &mut Applied) -> Result<(), Failed> {
        let settings: Vec<&'static str> = steps
            .iter()
            .filter_map(|step| match step {
                Step::SwitchOff(_, setting) => Some(*setting),
                _ => None,
            })
            .collect();
        let name = self.pair().map_err(at_first)?.end(side).name.clone();
        let unwritten = match side {
            Side::Host => settings::write(&name, &settings),
            // A file below /proc/sys/net belongs to the namespace in which it is
            // opened.
            Side::Pod => {
                let pod = self.pod().map_err(at_first)?;
                let write = || settings::write(&name, &settings);
                pod.home.visit(pod.netns.as_fd(), write).map_err(at_first)?
            }
        }?;
        for Unwritten { at, warning } in unwritten {
            applied.warnings.push(warning);
            if side == Side::Host {
                applied.unwritten.extend(settings.get(at));
            }
        }
        Ok(())
    }

    fn socket(&mut self, side: Side) -> Result<&mut Socket, Error> {
        match side {
            Side::Host => self.host(),
            Side::Pod => self.pod().map(|pod| &mut pod.socket),
        }
    }

    fn send(&mut self, side: Side, steps: &[Step], applied: &mut Applied) -> Result<(), Failed> {
        let pair = self.pair().map_err(at_first)?;
        let implied: Vec<&route::Route> = steps.iter().filter_map(implied_default).collect();
        let other = if implied.is_empty() {
            None
        } else {
            let socket = &mut self.pod().map_err(at_first)?.socket;
            other_network::find(socket, &pair.pod).map_err(at_first)?
        };
        let is_sent = |step: &Step| other.is_none() || implied_default(step).is_none();
        let (sent, requests): (Vec<usize>, Vec<Request>) = steps
            .iter()
            .enumerate()
            .filter(|(_, step)| is_sent(step))
            .filter_map(|(step, it)| Some((step, request(it, side, &pair)?)))
            .unzip();
        let answers = self
            .socket(side)
            .and_then(|socket| socket.batch(&requests))
            .map_err(at_first)?;
        let mut is_taken = false;
        for (step, answer) in sent.into_iter().zip(answers) {
            match (answer, &steps[step]) {
                // A kernel, or a link with too small an MTU, may be without IPv6.
                (Err(error), Step::NoLinkLocal(_))
                    if error.errno() == Some(Errno::EAFNOSUPPORT) => {}
                (Err(error), Step::ImpliedDefault(_)) if error.is_present() => is_taken = true,
                (answer, _) => answer.map_err(|error| Failed { step, error })?,
            }
        }
        if is_taken {
            self.take_back(&implied, &pair.pod).map_err(at_first)?;
        }
        if is_taken || other.is_some() {
            applied.leave_out(&implied, other.as_deref().unwrap_or("another link"));
        }
        Ok(())
    }

    /// Removes the implied default routes that were added before another network was
    /// noticed.
    fn take_back(&mut self, implied: &[&route::Route], own: &End) -> Result<(), Error> {
        let requests: Vec<Request> = implied
            .iter()
            .map(|route| route::delete(&out_of(route, own.index)))
            .collect();
        let answers = self.pod()?.socket.batch(&requests)?;
        let mut refused = answers.into_iter().filter_map(Result::err);
        refused.find(|error| !error.is_absent()).map_or(Ok(()), Err)
    }
}

fn implied_default(step: &Step) -> Option<&route::Route> {
    match step {
        Step::ImpliedDefault(route) => Some(route),
        _ => None,
    }
}

fn out_of(route: &route::Route, index: u32) -> route::Route {
    route::Route {
        out: Some(index),
        ..route.clone()
    }
}

/// The message that carries out a step, sent from `from`; none for a step that is
/// carried out in another way.
fn request(step: &Step, from: Side, pair: &Pair) -> Option<Request> {
    let End { index, name } = pair.end(from);
    let (index, name) = (*index, name.as_str());
    match step {
        Step::CreatePair { .. } | Step::SwitchOff(..) => None,
        Step::QueryCarrier(Side::Host) => Some(link::look(index, name)),
        Step::QueryCarrier(Side::Pod) => {
            let End { index, name } = &pair.pod;
            Some(link::look_into(pair.pod_netns, *index, name))
        }
        Step::NoLinkLocal(_) => Some(link::Change::of(index, name).without_link_local().request()),
        Step::Ipv4Gateway => Some(link::Change::of(index, name).as_ipv4_gateway().request()),
        Step::Address(network) => Some(address::add(index, name, *network)),
        Step::Up(_, alias) => {
            let change = link::Change::of(index, name).up();
            let change = match alias {
                Some(alias) => change.alias(alias),
                None => change,
            };
            Some(change.request())
        }
        Step::Neighbour(_, ip, mac) => Some(neighbour::set(index, name, *ip, *mac)),
        Step::GatewayRoute(route) => Some(route::append(&out_of(route, index))),
        Step::Route(_, route) | Step::ImpliedDefault(route) => {
            Some(route::add(&out_of(route, index)))
        }
    }
}
