//! ADD: reserve addresses, create the links, return the result; or leave nothing.

use std::{collections::BTreeSet, net::IpAddr};

use tweed_cni::{AddResult, CniError, Code, Command, Request, Route, Target};
use tweed_core::{family::Family, mac::Mac, netns, sysctl::forwarding_of};
use tweed_ipam::record::{Made, Owner, Process, State};
use tweed_ipam::store::{Held, LOCK_WAIT, Locked, Seed, Store};
use tweed_ipam::{plugin::ipam_config, ranges::RangeSets, resolv_conf};
use tweed_netlink::Error;

use crate::Tweed;
use crate::config::{Ipam, Settings};
use crate::datapath::veth::plan::{self, Desired, Side, Step};
use crate::datapath::veth::{Applied, Failed, Kernel, refused};
use crate::delegate::{Call, Delegate};
use crate::ipam::{self, Reservation};
use crate::judgement::{self, Judgement};
use crate::ready::is_ready;
use crate::verbs::gc::{self, is_link_gone};
use crate::verbs::result::result;

/// Attaches a container.
///
/// # Errors
/// After everything that was done has been undone.
pub fn add<K: Kernel, D: Delegate>(
    tweed: &mut Tweed<K, D>,
    request: &Request<'_>,
    target: &Target,
) -> Result<AddResult, CniError> {
    let settings = Settings::read(&request.config)?;
    if let Some(path) = settings
        .ready_file
        .as_deref()
        .filter(|path| !is_ready(path))
    {
        let path = path.display();
        let problem =
            format!("the node's network is not up yet: {path} is missing or of an earlier boot");
        return Err(CniError::new(Code::TryAgainLater, problem).details(
            "tweed-agent writes it when the node can carry traffic; its log says what it waits for",
        ));
    }
    let before = request.config.prev_result()?.unwrap_or_default();
    let pod_mac = settings.mac.or(target.args.mac);
    let pod_mac = pod_mac.unwrap_or_else(|| target.attachment.pod_mac());
    tweed.kernel.open_pod(target.netns.as_ref())?;

    let mut attempt = Attempt::begin(tweed, request, &settings, target, pod_mac)?;
    let reservation = attempt.reserve()?;
    let addresses = reservation.addresses();
    // Early, so that the agent works while the links are made.
    let judged = Judgement::begin(&settings, request, target, &addresses);
    if matches!(judged, Judgement::Later) {
        let kernel = &mut attempt.tweed.kernel;
        judgement::forget_earlier(kernel, request, &target.attachment, &addresses);
    }
    plan::check_next_hops(&reservation.routes, &reservation.node)?;
    for part in plan::unsupported(&reservation.routes) {
        request.log(format_args!("warning: {part} is not supported: ignored"));
    }
    let mut routes = plan::pod_routes(&addresses, &reservation.routes, settings.default_route);
    let steps = plan::plan(&Desired {
        attachment: &target.attachment,
        pod: target.args.pod.as_ref(),
        pod_mac,
        mtu: settings.mtu,
        addresses: &addresses,
        routes: &routes,
        host_source: &settings.host_source,
    })?;
    let applied = attempt.build(&steps)?;
    if settings.ready_file.is_none() {
        attempt.forward(&addresses)?;
    }
    routes.retain(|it| !(it.is_implied && applied.left_out.contains(&it.route.dst)));
    let routes: Vec<Route> = routes.into_iter().map(|it| it.route).collect();
    let dns = request.config.dns()?;
    let made = Made {
        host_source: settings.host_source.clone(),
        routes,
        unwritten: applied.unwritten.iter().map(ToString::to_string).collect(),
    };
    let result = result(
        before,
        target,
        pod_mac,
        &settings,
        &reservation,
        &made,
        &dns,
    );
    attempt.succeed(made)?;
    if judged.misses(request, &target.attachment) {
        judgement::forget_earlier(&mut tweed.kernel, request, &target.attachment, &addresses);
    }
    Ok(result)
}

/// What an attempt has done and must undo unless it succeeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Done {
    /// The store has a record of this process.
    Recorded,
    /// The delegated IPAM plugin may have given an address.
    Delegated,
    /// The pair of links may exist.
    Linked,
}

/// An ADD in progress. Dropped before [`Attempt::succeed`], by an error or a
/// panic, it undoes everything, the last thing first.
struct Attempt<'a, 'r, K: Kernel, D: Delegate> {
    tweed: &'a mut Tweed<K, D>,
    request: &'a Request<'r>,
    settings: &'a Settings,
    seed: Seed,
    done: Vec<Done>,
    requested: Vec<IpAddr>,
    /// Released after everything is undone: a struct's fields are dropped after
    /// the struct's own `drop`.
    held: Option<Held>,
}

impl<'a, 'r, K: Kernel, D: Delegate> Attempt<'a, 'r, K, D> {
    fn begin(
        tweed: &'a mut Tweed<K, D>,
        request: &'a Request<'r>,
        settings: &'a Settings,
        target: &Target,
        pod_mac: Mac,
    ) -> Result<Self, CniError> {
        let by = Process::current()?;
        let attachment = &target.attachment;
        let seed = Seed {
            netns: Some(target.netns.clone()),
            link: Some(attachment.link_name()),
            host_mac: Some(attachment.host_mac()),
            pod_mac: Some(pod_mac),
            host_netns: netns::own().ok(),
            ipam: match &settings.place.ipam {
                Ipam::BuiltIn => None,
                Ipam::Delegated(plugin) => Some(plugin.clone()),
            },
            mtu: Some(settings.mtu),
            pod: target.args.pod.clone(),
            pod_uid: target.args.pod_uid.clone(),
            ..Seed::new(attachment.clone(), Owner::Tweed, by)
        };
        Ok(Self {
            tweed,
            request,
            settings,
            seed,
            done: Vec::new(),
            requested: request.config.requested_ips(&target.args)?,
            held: None,
        })
    }

    fn reserve(&mut self) -> Result<Reservation, CniError> {
        match &self.settings.place.ipam {
            Ipam::BuiltIn => {
                let config = ipam_config(self.request)?;
                let dns = resolv_conf::read(&config)?;
                let mut reserved = self.reserve_in_store(&config.ranges);
                if reserved.as_ref().is_err_and(is_scarcity) {
                    // Without an agent, and a runtime that calls GC, nobody else frees what
                    // pods had whose DEL never came.
                    let store = &self.settings.place.store;
                    if gc::free_unused(self.tweed, self.request, store) {
                        reserved = self.reserve_in_store(&config.ranges);
                    }
                }
                let held = reserved?;
                let reservation = Reservation::built_in(&held, config, dns);
                self.held = Some(held);
                self.done.push(Done::Recorded);
                Ok(reservation)
            }
            Ipam::Delegated(plugin) => {
                // Before the call, so that after a kill something leads to the addresses.
                self.held = Some(self.lock_cleared()?.track(&self.seed, Vec::new())?);
                self.done.push(Done::Recorded);
                let stdout = self.call_delegate(plugin)?;
                let store = &self.settings.place.store;
                let (held, reservation) = ipam::record_given(store, &self.seed, plugin, &stdout)?;
                self.held = Some(held);
                Ok(reservation)
            }
        }
    }

    fn reserve_in_store(&mut self, ranges: &RangeSets) -> Result<Held, CniError> {
        let mut locked = self.lock_cleared()?;
        Ok(locked.reserve(&self.seed, ranges, &self.requested)?)
    }

    /// Has another plugin give addresses. That is undone even if the plugin fails, after
    /// a part of its work, but not if it was never started.
    fn call_delegate(&mut self, plugin: &str) -> Result<Vec<u8>, CniError> {
        self.done.push(Done::Delegated);
        let called = self.tweed.delegate.call(Call {
            command: Command::Add,
            plugin,
            cni_path: &self.request.cni_path,
            config: self.request.config.bytes(),
            of: None,
        });
        called.map_err(|failed| {
            if !failed.was_started {
                self.done.retain(|done| *done != Done::Delegated);
            }
            failed.error
        })
    }

    /// Locks the store. What an interrupted ADD or DEL of the same attachment left
    /// in the kernel, or an earlier ADD whose link is gone with the pod's namespace, is
    /// removed first, without the store's lock, which another
    /// plugin may need. The lock on the record keeps other processes away meanwhile.
    fn lock_cleared(&mut self) -> Result<Locked<'a>, CniError> {
        let settings = self.settings;
        let store = &settings.place.store;
        let mut locked = store.lock(LOCK_WAIT)?;
        let kernel = &mut self.tweed.kernel;
        let Some(interrupted) = locked
            .take_over_abandoned(&self.seed.attachment, |record| is_link_gone(kernel, record))?
        else {
            return Ok(locked);
        };
        drop(locked);
        self.tweed.detach(self.request, &self.seed.attachment)?;
        self.tweed
            .forward(Command::Del, &settings.place.ipam, self.request)?;
        drop(interrupted);
        Ok(store.lock(LOCK_WAIT)?)
    }

    fn build(&mut self, steps: &[Step]) -> Result<Applied, CniError> {
        // Recorded before it is done, so that a panic meanwhile is undone too.
        if steps.iter().any(Step::needs_undo) {
            self.done.push(Done::Linked);
        }
        let failed = match self.tweed.kernel.apply(steps) {
            Ok(applied) => {
                for warning in &applied.warnings {
                    self.request.log(format_args!("warning: {warning}"));
                }
                return Ok(applied);
            }
            Err(failed) => failed,
        };
        if steps.get(failed.step).is_some_and(Step::needs_undo) && failed.error.is_present() {
            // The pair existed before this ADD, which must not delete it.
            self.done.retain(|done| *done != Done::Linked);
        }
        Err(self.explain(steps, failed))
    }

    /// Switches the node's forwarding on for the families of these addresses. Where
    /// there is an agent, which writes `readyFile`, it has done so. This comes last, as
    /// it is not undone: other pods may need it by then.
    fn forward(&mut self, addresses: &[IpAddr]) -> Result<(), CniError> {
        let families: BTreeSet<Family> = addresses.iter().copied().map(Family::of).collect();
        for family in families {
            let enabled = self.tweed.kernel.enable_forwarding(family);
            if enabled.map_err(|error| not_forwarding(family, error))? {
                self.request.log(format_args!(
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
                let in_pod = self.tweed.kernel.pod_has_link(&pod.name).unwrap_or(true);
                let problem = if in_pod {
                    format!("interface {} exists already in the container", pod.name)
                } else {
                    format!("link {} exists already on the host", host.name)
                };
                CniError::new(Code::InterfaceExists, problem)
                    .details("it was left as it is; an ADD needs a DEL before it")
            }
            Some(Step::Route(Side::Host, route)) if is_present => {
                error.details(self.tweed.holder_of(route.destination.ip()))
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

    fn succeed(mut self, made: Made) -> Result<(), CniError> {
        if let Some(held) = &mut self.held {
            held.set_made(made);
            self.settings.place.store.mark_live(held, LOCK_WAIT)?;
        }
        self.done.clear();
        Ok(())
    }

    fn undo(&mut self, done: Done) -> Result<(), CniError> {
        match done {
            Done::Linked => self.tweed.detach(self.request, &self.seed.attachment),
            Done::Delegated => {
                self.tweed
                    .forward(Command::Del, &self.settings.place.ipam, self.request)
            }
            Done::Recorded => free_own(&self.settings.place.store, &self.seed),
        }
    }
}

/// Whether the store has no address for the attachment, but may have if somebody else's is
/// freed.
fn is_scarcity(error: &CniError) -> bool {
    let codes = [Code::RangeExhausted, Code::AddressNotAvailable];
    codes.iter().any(|code| code.number() == error.code)
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

/// Frees the record if it is still that of this ADD: by now it may belong to
/// another one.
fn free_own(store: &Store, seed: &Seed) -> Result<(), CniError> {
    let Some(mut locked) = store.lock_existing(LOCK_WAIT)? else {
        return Ok(());
    };
    let found = locked.read(&seed.attachment)?;
    if found.is_some_and(|record| record.state == State::Adding { by: seed.by }) {
        locked.free(&seed.attachment)?;
    }
    Ok(())
}

impl<K: Kernel, D: Delegate> Drop for Attempt<'_, '_, K, D> {
    fn drop(&mut self) {
        while let Some(done) = self.done.pop() {
            if let Err(error) = self.undo(done) {
                self.request.log(format_args!(
                    "error: cannot undo the ADD of {}: {error}; the next DEL or GC will",
                    self.seed.attachment
                ));
                // The record stays. It leads them to the link and to the other plugin,
                // and keeps the addresses until then.
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests;
