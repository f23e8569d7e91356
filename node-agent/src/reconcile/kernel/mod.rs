//! rtnetlink: reads what the kernel holds, compares it with the plan, writes
//! what differs.
//!
//! How data goes through: dumps fill the [`mirror`] ([`read`]); the plan becomes
//! [`resolved`], which is in the kernel's terms; [`diff`] and [`device`] compare
//! the two and give [`change`]s, in the order in which they must be written;
//! [`request`] makes messages of them, [`Kernel::write`] sends these and enters
//! what was acknowledged into the mirror. [`notification`] says which parts of
//! the mirror a notification makes stale. [`converge`] does all of this for the
//! whole plan, [`delta`] for what single Nodes changed in it; [`reconciler`]
//! decides which of the two is needed, if any.
//!
//! [`Kernel`] is the only thing here that does I/O. It belongs to one thread and
//! is synchronous, since each write has to wait for the one before. All else is
//! pure.
//!
//! What always holds: nothing is written that [`tweed_netlink::owned`] does not
//! name; the mirror is changed by dumps and acknowledged writes alone; when the
//! socket fails, all of the mirror that is compared is stale.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd};

use tweed_core::{mac::Mac, version::Version};
use tweed_netlink::link::{self, Link};
use tweed_netlink::{Error, Monitor, Request, Socket, leaving, route::Sequence};

use super::outcome::{Outcome, RefusedWrite};

pub mod change;
mod converge;
mod delta;
mod device;
pub mod diff;
mod host;
pub mod key;
mod local;
pub mod mirror;
mod notification;
mod read;
pub mod reconciler;
mod request;
mod resolved;
mod stale;
pub mod way;

use change::Change;
use mirror::{Mirror, MirrorPart};
use stale::Stale;

/// Number of changes that are written before their own notifications are read:
/// those of thousands would not fit into the monitor's socket buffer, and everything
/// would have to be read again. More than a few hundred at a time save no time, and take
/// memory.
const BATCH: usize = 250;
/// Maximum number of times that [`Kernel::observe`] reads: reading one part may
/// show that another is stale.
const MAX_READS: u32 = 3;

/// This node's kernel: two sockets, and what was last read.
#[derive(Debug)]
pub struct Kernel {
    socket: Socket,
    monitor: Monitor,
    mirror: Mirror,
    /// What of the mirror has to be read again.
    stale: Stale,
    version: Version,
}

impl Kernel {
    /// Opens the sockets in the calling thread's network namespace. Everything
    /// is stale: the first [`Kernel::observe`] reads all of it. `vtep_mac` is
    /// that of this node's name (`tweed_planner::overlay::vtep`).
    ///
    /// # Errors
    /// When the kernel gives no such sockets.
    pub fn open(vtep_mac: Mac) -> Result<Self, Error> {
        // The monitor first, so that no change after the first dump is missed.
        let monitor = Monitor::open()?;
        Ok(Self {
            socket: Socket::open()?,
            monitor,
            mirror: Mirror {
                vtep_mac: Some(vtep_mac),
                ..Mirror::default()
            },
            stale: MirrorPart::ALL.into(),
            version: Version::default(),
        })
    }

    /// What was last read.
    pub fn mirror(&self) -> &Mirror {
        &self.mirror
    }

    /// The version of what the overlay's plan is compared with. What others and pods have on
    /// their links is not part of it: that comes and goes all the time.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Number of requests that change something sent so far.
    pub fn changes_sent(&self) -> u64 {
        self.socket.changes_sent()
    }

    /// Whether anything of the mirror has to be read again.
    pub fn is_stale(&self) -> bool {
        !self.stale.is_empty()
    }

    /// Whether the mirror has what a part held when it was last told to change.
    pub fn is_known(&self, part: MirrorPart) -> bool {
        !self.stale.concerns(part)
    }

    /// Has `parts` read again by the next [`Kernel::observe`].
    pub fn invalidate(&mut self, parts: impl IntoIterator<Item = MirrorPart>) {
        self.stale.extend(parts.into_iter().collect());
    }

    /// Reads the notifications that have come.
    ///
    /// # Errors
    /// When the socket fails: then everything is stale.
    pub fn read_notifications(&mut self) -> Result<(), Error> {
        let notifications = self.monitor.drain().inspect_err(|_| {
            self.stale.extend(MirrorPart::COMPARED.into());
        })?;
        for notification in &notifications {
            let stale = notification::stale(&self.mirror, notification);
            self.stale.extend(stale);
        }
        Ok(())
    }

    /// Reads notifications and what is stale, until nothing is.
    ///
    /// # Errors
    /// When the kernel cannot be read: then everything is stale.
    pub fn observe(&mut self) -> Result<(), Error> {
        for _ in 0..MAX_READS {
            self.read_notifications()?;
            if !self.is_stale() {
                break;
            }
            self.refresh()?;
        }
        Ok(())
    }

    /// Reads what is stale, once.
    ///
    /// # Errors
    /// When the kernel cannot be read: then everything is stale.
    pub fn refresh(&mut self) -> Result<(), Error> {
        for part in MirrorPart::ALL {
            if self.stale.take_part(part) {
                self.read(part).inspect_err(|_| {
                    self.invalidate([part]);
                    self.invalidate(MirrorPart::COMPARED);
                })?;
            }
        }
        while let Some(index) = self.stale.take_link() {
            self.read_link(index)
                .inspect_err(|_| self.invalidate(MirrorPart::COMPARED))?;
        }
        Ok(())
    }

    /// A dump may show that an object is gone before its notification is read,
    /// which then says nothing new. So what the kernel removed with it without
    /// notification becomes stale here too.
    fn read(&mut self, part: MirrorPart) -> Result<(), Error> {
        let before = self.mirror.removes_others();
        let differs = read::read(&mut self.socket, &mut self.mirror, part)?;
        self.stale
            .extend(notification::losses(&before, &self.mirror, part));
        // Most resyncs find what is there already: that is no new version.
        if differs {
            self.version.bump();
        }
        Ok(())
    }

    /// As [`Self::read`], for one link and what is on it.
    fn read_link(&mut self, index: u32) -> Result<(), Error> {
        let before = self.mirror.removes_others();
        let differs = read::read_link(&mut self.socket, &mut self.mirror, index)?;
        for part in [MirrorPart::Links, MirrorPart::Addresses] {
            let mut losses = notification::losses(&before, &self.mirror, part);
            losses.forget_link(index);
            self.stale.extend(losses);
        }
        if differs {
            self.version.bump();
        }
        Ok(())
    }

    /// Writes `changes` in the order that they need, many in one message to the
    /// kernel. Gives what was written and what the kernel refused; a removal of
    /// what is gone already counts as written.
    ///
    /// # Errors
    /// When the socket fails: then everything is stale.
    pub fn write(&mut self, mut changes: Vec<Change>) -> Result<Outcome, Error> {
        let mut outcome = Outcome::default();
        change::order(&mut changes);
        let mut left = changes.into_iter().peekable();
        while left.peek().is_some() {
            let batch = left.by_ref().take(BATCH).collect();
            self.write_batch(batch, &mut outcome)?;
        }
        Ok(outcome)
    }

    fn write_batch(&mut self, changes: Vec<Change>, outcome: &mut Outcome) -> Result<(), Error> {
        let requests = |change| request::requests(&self.mirror, change);
        let sequences: Vec<Sequence> = changes.iter().map(requests).collect();
        let messages = sequences.iter().flat_map(|one| one.first.iter().cloned());
        let first: Vec<Request> = messages.collect();
        let mut answers = self.send(&first)?.into_iter();
        let links: BTreeSet<u32> = changes.iter().flat_map(Change::links).collect();
        let leads_nowhere = changes.iter().any(|change| change.links().is_empty());
        let of_overlay = leads_nowhere || self.mirror.has_overlay_on(&links);
        let mut following = Vec::new();
        for (change, sequence) in changes.into_iter().zip(sequences) {
            let object = sequence.first.first().map_or("", |one| &one.object);
            let answered = sequence.first.iter().zip(answers.by_ref());
            let of_leaving = matches!(change, Change::RemoveLeavingLinks { .. });
            match answer_of(answered, of_leaving) {
                Answer::Refused(error) => {
                    // Part of it may be done.
                    let part = if of_leaving {
                        MirrorPart::Links
                    } else {
                        MirrorPart::Routes
                    };
                    let parts = (sequence.first.len() > 1).then_some(part);
                    self.invalidate(parts);
                    following.extend(sequence.undo);
                    let problem = change.refusal(&error);
                    let way = way::of(&change);
                    outcome.refused.push(RefusedWrite {
                        error,
                        kind: change.kind(),
                        problem,
                        way,
                    });
                    continue;
                }
                Answer::Absent if let Change::RemoveRoute(route) = &change => {
                    self.mirror.disown(route);
                    self.invalidate([MirrorPart::Routes]);
                }
                Answer::Absent | Answer::Done => self.mirror.apply(&change),
            }
            following.extend(sequence.then);
            outcome.wrote(change.kind(), 1, object);
        }
        if of_overlay || self.mirror.has_overlay_on(&links) {
            self.version.bump();
        }
        let answers = self.send(&following)?;
        if let Answer::Refused(_) = answer_of(following.iter().zip(answers), false) {
            self.invalidate([MirrorPart::Routes]);
        }
        // Their notifications are here: the kernel sends them before it answers.
        self.read_notifications()
    }

    fn send(&mut self, requests: &[Request]) -> Result<Vec<Result<(), Error>>, Error> {
        let answers = self.socket.batch(requests);
        answers.inspect_err(|_| self.invalidate(MirrorPart::COMPARED))
    }

    /// Deletes the links that are being deleted ([`leaving`]). The links are read right
    /// before: in the group that is deleted as a whole nobody else's link may be.
    ///
    /// # Errors
    /// When the kernel cannot be read or written.
    pub fn delete_leaving_links(&mut self) -> Result<Outcome, Error> {
        self.invalidate([MirrorPart::Links]);
        self.refresh()?;
        self.write(self.mirror.delete_leaving_links(leaving::draw))
    }

    /// The other end of a pod's link, as the kernel has it at this moment. None if its namespace
    /// cannot be asked, as when it is being removed.
    pub fn other_end(&mut self, link: &Link) -> Option<Link> {
        link::peer_elsewhere(&mut self.socket, link).ok().flatten()
    }

    /// Whether a link of this name is there at this moment: asks the kernel and
    /// not the mirror.
    ///
    /// # Errors
    /// When the kernel cannot be read.
    pub fn has_link(&mut self, name: &str) -> Result<bool, Error> {
        Ok(link::by_name(&mut self.socket, name)?.is_some())
    }
}

/// The result of the kernel's answers to the requests of one change.
enum Answer {
    Done,
    /// There was nothing to delete.
    Absent,
    Refused(Error),
}

/// The result of these answers; `deletes` says that all requests are parts of a deletion,
/// the others only lead to it.
fn answer_of<'a>(
    answers: impl Iterator<Item = (&'a Request, Result<(), Error>)>,
    deletes: bool,
) -> Answer {
    answers.fold(Answer::Done, |all, (request, answer)| match (all, answer) {
        (Answer::Refused(error), _) => Answer::Refused(error),
        (all, Ok(())) => all,
        (_, Err(error)) if (deletes || request.is_deletion()) && error.is_absent() => {
            Answer::Absent
        }
        (_, Err(error)) => Answer::Refused(error),
    })
}

impl AsFd for Kernel {
    /// The monitor: readable when there are notifications.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.monitor.as_fd()
    }
}
