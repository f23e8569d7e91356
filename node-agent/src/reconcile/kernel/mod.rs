//! The kernel's side of the agent: observe, compare, write.
//!
//! [`Kernel`], and in it [`Kernel::converge`], is the one entry point and the only thing here that does I/O; it
//! belongs to one thread and is synchronous, since order matters more than
//! anything could be gained by waiting for two things at once. Around it all is
//! pure: [`owned`] says what is tweed's, [`mirror`] is the mirror of what was
//! last seen, [`resolved`] turns the plan into the kernel's terms, [`device`] and
//! [`diff`] decide what to write, [`change`] in which order, [`notification`] what a
//! notification puts in doubt, [`sysctl`] which sysctls are kept, [`version`] which
//! kernels will do.
//!
//! What always holds: nothing is written that [`owned`] does not name; the
//! mirror is changed by dumps and acknowledged writes alone; a write that
//! failed puts all of it in doubt.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd};

use tweed_core::mac::Mac;
use tweed_netlink::link;
use tweed_netlink::monitor::Monitor;
use tweed_netlink::{Error, Socket, route};

pub mod change;
pub mod converge;
pub mod delta;
pub mod device;
pub mod diff;
pub mod mirror;
pub mod notification;
mod read;
mod request;
pub mod resolved;

use change::Change;
use mirror::Mirror;
use notification::Part;

/// So many changes are written before their echoes are heard: those of more
/// would not fit into the monitor's socket, and all would have to be read again.
const PART: usize = 1000;
/// `RTPROT_RA`: routes that the kernel learnt from a router's advertisement.
const ADVERTISED: u8 = 9;

/// A write that the kernel refused.
#[derive(Debug)]
pub struct Refusal {
    /// What was to be written.
    pub change: Change,
    /// Its answer.
    pub error: Error,
}

/// This node's kernel: two sockets and what was last seen.
#[derive(Debug)]
pub struct Kernel {
    socket: Socket,
    monitor: Monitor,
    mirror: Mirror,
    doubtful: BTreeSet<Part>,
    generation: u64,
}

impl Kernel {
    /// Opens the sockets in the calling thread's network namespace. Nothing is
    /// known yet: the first [`Kernel::refresh`] reads everything. `vtep_mac` is
    /// that of this node's name (`tweed_planner::overlay::vtep`).
    ///
    /// # Errors
    /// When the kernel gives no such sockets.
    pub fn open(vtep_mac: Mac) -> Result<Self, Error> {
        // The monitor first: what changes from here on is heard.
        let monitor = Monitor::open()?;
        Ok(Self {
            socket: Socket::open()?,
            monitor,
            mirror: Mirror {
                vtep_mac: Some(vtep_mac),
                ..Mirror::default()
            },
            doubtful: Part::ALL.into(),
            generation: 0,
        })
    }

    /// What was last seen.
    #[must_use]
    pub fn mirror(&self) -> &Mirror {
        &self.mirror
    }

    /// Grows whenever the mirror may say something else than before.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// How many requests that change something were sent so far.
    #[must_use]
    pub fn changes_sent(&self) -> u64 {
        self.socket.changes_sent()
    }

    /// Whether something has to be read again.
    #[must_use]
    pub fn is_doubtful(&self) -> bool {
        !self.doubtful.is_empty()
    }

    /// Has `parts` read again by the next [`Kernel::refresh`].
    pub fn doubt(&mut self, parts: impl IntoIterator<Item = Part>) {
        self.doubtful.extend(parts);
    }

    /// Takes in the notifications that have come.
    ///
    /// # Errors
    /// When the socket fails: then everything is in doubt.
    pub fn listen(&mut self) -> Result<(), Error> {
        let notifications = self.monitor.drain().inspect_err(|_| {
            self.doubtful = Part::ALL.into();
        })?;
        for notification in &notifications {
            let parts = notification::doubts(&self.mirror, notification);
            self.doubtful.extend(parts);
        }
        Ok(())
    }

    /// Reads what is in doubt. Gives the parts that were read.
    ///
    /// # Errors
    /// When the kernel cannot be asked: then everything is in doubt.
    pub fn refresh(&mut self) -> Result<BTreeSet<Part>, Error> {
        let mut read = BTreeSet::new();
        for part in Part::ALL {
            if self.doubtful.remove(&part) {
                self.read(part)
                    .inspect_err(|_| self.doubtful = Part::ALL.into())?;
                read.insert(part);
            }
        }
        Ok(read)
    }

    /// A read may see that something is gone before its notification is heard,
    /// which then tells nothing new. So what went along untold is put in doubt
    /// here too.
    fn read(&mut self, part: Part) -> Result<(), Error> {
        // Only of these two does the loss of an object take others along.
        let before = Mirror {
            links: self.mirror.links.clone(),
            addresses: self.mirror.addresses.clone(),
            ..Mirror::default()
        };
        let differs = read::read(&mut self.socket, &mut self.mirror, part)?;
        self.doubtful
            .extend(notification::losses(&before, &self.mirror, part));
        // What is read by the clock is mostly found as it was.
        self.generation += u64::from(differs);
        Ok(())
    }

    /// Writes `changes`, in the order that they need, many in one message to
    /// the kernel. Gives what it refused; a removal of what is gone already is
    /// not refused.
    ///
    /// # Errors
    /// When the socket fails: then everything is in doubt.
    pub fn write(&mut self, mut changes: Vec<Change>) -> Result<Vec<Refusal>, Error> {
        if changes.is_empty() {
            return Ok(Vec::new());
        }
        change::order(&mut changes);
        let mut refusals = Vec::new();
        let mut left = changes.into_iter().peekable();
        while left.peek().is_some() {
            let part = left.by_ref().take(PART).collect();
            self.write_part(part, &mut refusals)?;
        }
        Ok(refusals)
    }

    fn write_part(
        &mut self,
        changes: Vec<Change>,
        refusals: &mut Vec<Refusal>,
    ) -> Result<(), Error> {
        let requests: Vec<_> = changes
            .iter()
            .map(|change| request::request(&self.mirror, change))
            .collect();
        let answers = self
            .socket
            .batch(&requests)
            .inspect_err(|_| self.doubtful = Part::ALL.into())?;
        self.generation += 1;
        for (change, answer) in changes.into_iter().zip(answers) {
            match answer {
                Err(error) if !(change.is_removal() && error.is_absent()) => {
                    refusals.push(Refusal { change, error });
                }
                _ => self.mirror.apply(&change),
            }
        }
        // The echoes are here already: the kernel tells before it answers.
        self.listen()
    }

    /// Deletes the links on their way out, and gives what the kernel refused. It
    /// looks at them right before: of a group that is deleted as a whole nobody
    /// else's link may be.
    ///
    /// # Errors
    /// When the kernel cannot be asked.
    pub fn finish_leaving(&mut self) -> Result<Vec<Refusal>, Error> {
        self.doubt([Part::Links]);
        self.refresh()?;
        self.write(self.mirror.finish_leaving())
    }

    /// Whether a link of this name is there at this moment.
    ///
    /// # Errors
    /// When the kernel cannot be asked.
    pub fn has_link(&mut self, name: &str) -> Result<bool, Error> {
        Ok(link::by_name(&mut self.socket, name)?.is_some())
    }

    /// The links that have a route which a router advertised.
    ///
    /// # Errors
    /// When the kernel cannot be asked.
    pub fn links_on_advertisements(&mut self) -> Result<BTreeSet<u32>, Error> {
        let routes = route::list(&mut self.socket, Some(ADVERTISED))?;
        Ok(routes.iter().filter_map(|route| route.out).collect())
    }
}

impl AsFd for Kernel {
    /// The monitor: readable when there are notifications.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.monitor.as_fd()
    }
}
