//! ADD: reserve addresses, create the links, return the result; or leave nothing.

use std::net::IpAddr;

use tweed_cni::{AddResult, CniError, Code, Command, Request, Target};
use tweed_core::{mac::Mac, netns};
use tweed_ipam::record::{Made, Owner, Process, Record};
use tweed_ipam::store::{Held, LOCK_WAIT, Locked, Store, StoreError};
use tweed_ipam::{plugin::ipam_config, ranges::RangeSets, resolv_conf};

use crate::Tweed;
use crate::config::{Ipam, Settings};
use crate::datapath::{Attached, Datapath, Wanted};
use crate::delegate::{Call, Delegate};
use crate::enforcement::{self, Enforcement};
use crate::ipam::{self, Reservation};
use crate::not_done::NotDone;
use crate::ready::is_ready;
use crate::verbs::gc;
use crate::verbs::result::result;

/// Attaches a container.
///
/// # Errors
/// After everything that was done has been undone.
pub fn add<P: Datapath, D: Delegate>(
    tweed: &mut Tweed<P, D>,
    request: &Request<'_>,
    target: &Target,
) -> Result<AddResult, CniError> {
    let settings = Settings::read(&request.config)?;
    if let Some(path) = settings
        .ready_file
        .as_deref()
        .filter(|path| !is_ready(path))
    {
        let problem = format!(
            "the node's network is not up yet: {} is missing or of an earlier boot",
            path.display()
        );
        return Err(CniError::new(Code::TryAgainLater, problem).details(
            "tweed-agent writes it when the node can carry traffic; tweedctl status says what it waits for",
        ));
    }
    let before = request.config.prev_result()?.unwrap_or_default();
    let requested_mac = settings.mac.or(target.args.mac);
    let pod_mac = requested_mac.unwrap_or_else(|| target.attachment.pod_mac());
    tweed.datapath.open_pod(target.netns.as_ref())?;

    let mut attempt = Attempt::begin(tweed, request, &settings, target, pod_mac)?;
    let reservation = attempt.reserve()?;
    let addresses = reservation.addresses();
    // Early, so that the agent works while the links are made.
    let enforced = Enforcement::begin(&settings, request, target, &addresses);
    if matches!(enforced, Enforcement::Later) {
        let datapath = &mut attempt.tweed.datapath;
        enforcement::forget_earlier(datapath, request, &target.attachment, &addresses);
    }
    let attached = attempt.attach(&Wanted {
        target,
        settings: &settings,
        pod_mac,
        addresses: &addresses,
        routes: &reservation.routes,
        node: &reservation.node,
    })?;
    let dns = request.config.dns()?;
    let (interfaces, routes) = (attached.interfaces, &attached.routes);
    let result = result(before, interfaces, routes, &reservation, &dns);
    let made = Made {
        host_source: settings.host_source.clone(),
        routes: attached.routes,
        unwritten: attached.unwritten,
    };
    let live = attempt.succeed(made)?;
    let waits = matches!(enforced, Enforcement::Asked { .. });
    let is_late = enforced.comes_late(request, &target.attachment);
    if let (true, Some(live)) = (waits, live) {
        confirm(tweed, request, &settings.place.store, &live)?;
    }
    if is_late {
        enforcement::forget_earlier(&mut tweed.datapath, request, &target.attachment, &addresses);
    }
    Ok(result)
}

/// Whether the attachment is still that of this ADD, which has waited with nothing locked. A
/// DEL or a GC may have freed it meanwhile, and its addresses may be another pod's by now.
///
/// # Errors
/// Code 11 if it is not, once nothing of it is left.
fn confirm<P: Datapath, D: Delegate>(
    tweed: &mut Tweed<P, D>,
    request: &Request<'_>,
    store: &Store,
    live: &Record,
) -> Result<(), CniError> {
    let attachment = live.attachment();
    let mut locked = store.lock_existing(LOCK_WAIT)?;
    let found = match &locked {
        Some(locked) => locked.read(&attachment)?,
        None => None,
    };
    if found.as_ref() == Some(live) {
        return Ok(());
    }
    // Whoever removed the record without a DEL has left the link and the claims. While the
    // store is locked no other ADD makes a link of the same name. A record that is there
    // belongs to an ADD or a DEL, which sees to them itself.
    if found.is_none() {
        tweed.datapath.detach(request, &attachment)?;
        if let Some(locked) = &mut locked {
            locked.free(&attachment)?;
        }
    }
    Err(StoreError::RecordLost {
        attachment: attachment.to_string(),
        found: found.map(|found| found.state),
    }
    .into())
}

/// What an attempt has done and must undo unless it succeeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Done {
    /// The store has a record of this process.
    Recorded,
    /// The delegated IPAM plugin may have given an address.
    Delegated,
    /// The pod's links may exist.
    Linked,
}

/// An ADD in progress. Dropped before [`Attempt::succeed`], by an error or a
/// panic, it undoes everything, the last thing first.
struct Attempt<'a, 'r, P: Datapath, D: Delegate> {
    tweed: &'a mut Tweed<P, D>,
    request: &'a Request<'r>,
    settings: &'a Settings,
    seed: Record,
    done: Vec<Done>,
    requested: Vec<IpAddr>,
    /// Released after everything is undone: a struct's fields are dropped after
    /// the struct's own `drop`.
    held: Option<Held>,
}

impl<'a, 'r, P: Datapath, D: Delegate> Attempt<'a, 'r, P, D> {
    fn begin(
        tweed: &'a mut Tweed<P, D>,
        request: &'a Request<'r>,
        settings: &'a Settings,
        target: &Target,
        pod_mac: Mac,
    ) -> Result<Self, CniError> {
        let by = Process::current()?;
        let attachment = &target.attachment;
        let (link, host_mac) = tweed.datapath.host_end(attachment).unzip();
        let seed = Record {
            netns: Some(target.netns.clone()),
            link,
            host_mac,
            pod_mac: Some(pod_mac),
            host_netns: netns::own().ok(),
            ipam: match &settings.place.ipam {
                Ipam::BuiltIn => None,
                Ipam::Delegated(plugin) => Some(plugin.clone()),
            },
            mtu: Some(settings.mtu),
            pod: target.args.pod.clone(),
            pod_uid: target.args.pod_uid.clone(),
            ..Record::adding(attachment.clone(), Owner::Tweed, by)
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
                let reservation = Reservation::built_in(&self.tweed.datapath, &held, config, dns);
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
                let datapath = &self.tweed.datapath;
                let (held, reservation) =
                    ipam::record_given(datapath, store, &self.seed, plugin, &stdout)?;
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
        self.outcome(Done::Delegated, called)
    }

    /// The outcome of what was noted as done before it began, so that a panic meanwhile is
    /// undone too.
    fn outcome<T>(&mut self, noted: Done, outcome: Result<T, NotDone>) -> Result<T, CniError> {
        if outcome.as_ref().is_err_and(|failed| !failed.needs_undo) {
            self.done.retain(|done| *done != noted);
        }
        Ok(outcome?)
    }

    /// Locks the store. What an interrupted ADD or DEL of the same attachment left
    /// in the kernel, or an earlier ADD whose link is gone with the pod's namespace, is
    /// removed first, without the store's lock, which another
    /// plugin may need. The lock on the record keeps other processes away meanwhile.
    fn lock_cleared(&mut self) -> Result<Locked<'a>, CniError> {
        let settings = self.settings;
        let store = &settings.place.store;
        let mut locked = store.lock(LOCK_WAIT)?;
        let datapath = &mut self.tweed.datapath;
        let Some(interrupted) = locked
            .take_over_abandoned(&self.seed.attachment(), |record| datapath.is_gone(record))?
        else {
            return Ok(locked);
        };
        drop(locked);
        self.tweed
            .datapath
            .detach(self.request, &self.seed.attachment())?;
        self.tweed
            .forward(Command::Del, &settings.place.ipam, self.request)?;
        drop(interrupted);
        Ok(store.lock(LOCK_WAIT)?)
    }

    fn attach(&mut self, wanted: &Wanted<'_>) -> Result<Attached, CniError> {
        self.done.push(Done::Linked);
        let attached = self.tweed.datapath.attach(self.request, wanted);
        self.outcome(Done::Linked, attached)
    }

    /// Returns the record as it is from now on.
    fn succeed(mut self, made: Made) -> Result<Option<Record>, CniError> {
        let store = &self.settings.place.store;
        let live = match &mut self.held {
            Some(held) => {
                held.set_made(made);
                Some(store.mark_live(held, LOCK_WAIT)?)
            }
            None => None,
        };
        self.done.clear();
        Ok(live)
    }

    fn undo(&mut self, done: Done) -> Result<(), CniError> {
        match done {
            Done::Linked => self
                .tweed
                .datapath
                .detach(self.request, &self.seed.attachment()),
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

/// Frees the record if it is still that of this ADD: by now it may belong to
/// another one.
fn free_own(store: &Store, seed: &Record) -> Result<(), CniError> {
    let Some(mut locked) = store.lock_existing(LOCK_WAIT)? else {
        return Ok(());
    };
    let found = locked.read(&seed.attachment())?;
    if found.is_some_and(|record| record.state == seed.state) {
        locked.free(&seed.attachment())?;
    }
    Ok(())
}

impl<P: Datapath, D: Delegate> Drop for Attempt<'_, '_, P, D> {
    fn drop(&mut self) {
        while let Some(done) = self.done.pop() {
            if let Err(error) = self.undo(done) {
                self.request.log(format_args!(
                    "error: cannot undo the ADD of {}: {error}; the next DEL or GC will",
                    self.seed.attachment()
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
