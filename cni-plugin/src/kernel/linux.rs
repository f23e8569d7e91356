//! The real kernel: two netlink sockets and `/proc/sys/net`.
//!
//! An ADD costs three round trips: make the pair (the kernel answers with the
//! host's end, which tells the index of its peer and the number of the namespace
//! that it is in), one batch inside the pod, one on the host, at whose end the
//! host looks at both ends. Before Linux 6.2 the pair has to be looked at, too.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::libc::{O_DIRECTORY, O_NONBLOCK, O_PATH};
use nix::sys::stat::Mode;
use tweed_core::ownership::LEAVING_LINK_GROUP;
use tweed_netlink::link::{self, Link, Numbers};
use tweed_netlink::netns::Home;
use tweed_netlink::{Cause, Error, Request, Socket, address, neighbour, route};

use super::finisher;
use super::{Aside, Failed, Kernel, NetnsError, Observed};
use crate::identity;
use crate::plan::{Setting, Side, Step};

/// The calling thread's namespace and, once opened, a pod's.
#[derive(Debug, Default)]
pub struct LinuxKernel {
    host: Option<Socket>,
    pod: Option<Pod>,
    pair: Option<Pair>,
    finishes_behind: bool,
}

#[derive(Debug)]
struct Pod {
    netns: File,
    home: Home,
    socket: Socket,
}

/// One end of the pair that this process has made.
#[derive(Debug, Clone)]
struct End {
    index: u32,
    name: String,
}

#[derive(Debug, Clone)]
struct Pair {
    host: End,
    pod: End,
    /// The number that the pod's namespace has in the host's.
    pod_netns: i32,
}

impl Pair {
    fn end(&self, side: Side) -> &End {
        match side {
            Side::Host => &self.host,
            Side::Pod => &self.pod,
        }
    }
}

impl LinuxKernel {
    /// One whose links on their way out are deleted by another process of the
    /// calling program, which must begin with
    /// [`finish_if_asked`](super::finish_if_asked). The default deletes them
    /// itself, and waits.
    #[must_use]
    pub fn finishing_behind() -> Self {
        Self {
            finishes_behind: true,
            ..Self::default()
        }
    }

    fn host(&mut self) -> Result<&mut Socket, Error> {
        match self.host {
            Some(ref mut socket) => Ok(socket),
            None => Ok(self.host.insert(Socket::open()?)),
        }
    }

    fn pod(&mut self) -> Result<&mut Pod, Error> {
        self.pod
            .as_mut()
            .ok_or_else(|| not_there("open", "the pod's network namespace"))
    }

    fn pair(&self) -> Result<Pair, Error> {
        self.pair
            .clone()
            .ok_or_else(|| not_there("look at", "the pair of links"))
    }

    fn create(&mut self, host: &link::VethEnd, pod: &link::VethEnd) -> Result<(), Error> {
        let request = link::create_veth(host, pod, self.pod()?.netns.as_fd());
        let answer = match link::create(self.host()?, &request) {
            Err(error) if error.is_present() && self.make_way(&pod.name)? => {
                link::create(self.host()?, &request)
            }
            answer => answer,
        };
        let made = match answer? {
            Some(numbers) => Some(numbers),
            None => link::by_name(self.host()?, &host.name)?.map(Numbers::from),
        };
        let numbers = made.and_then(|made| Some((made.index, made.peer?, made.peer_netns?)));
        let (host_index, pod_index, pod_netns) =
            numbers.ok_or_else(|| not_there("look at the pair of", &host.name))?;
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

    /// Makes way for a new pod end where the old one is on its way out: its DEL
    /// has returned, but the links are not deleted yet. Says whether it is worth
    /// to try again.
    fn make_way(&mut self, name: &str) -> Result<bool, Error> {
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
        // Both ends name each other: else the number is that of a link elsewhere.
        if !identity::is_leaving(&host_end) || host_end.peer != Some(old.index) {
            return Ok(false);
        }
        let renamed = link::Change::of(old.index, name).rename(&host_end.name);
        let answers = self.pod()?.socket.batch(&aside_requests(&old, renamed))?;
        if answers.iter().any(Result::is_err) {
            // An older one may have that name there, too.
            self.delete_host_link(&host_end)?;
        }
        Ok(true)
    }

    /// Writes the settings that `steps` begins with, all of one side.
    fn set(&mut self, side: Side, settings: &[Setting]) -> Result<Vec<String>, Failed> {
        let at_first = |error| Failed { step: 0, error };
        let name = self.pair().map_err(at_first)?.end(side).name.clone();
        match side {
            Side::Host => write_settings(&name, settings),
            // A file below /proc/sys/net is that of the namespace in which it
            // is opened.
            Side::Pod => {
                let pod = self.pod().map_err(at_first)?;
                let write = || write_settings(&name, settings);
                pod.home.visit(pod.netns.as_fd(), write).map_err(at_first)?
            }
        }
    }

    fn socket(&mut self, side: Side) -> Result<&mut Socket, Error> {
        match side {
            Side::Host => self.host(),
            Side::Pod => self.pod().map(|pod| &mut pod.socket),
        }
    }

    fn send(&mut self, side: Side, steps: &[Step]) -> Result<(), Failed> {
        let at_first = |error| Failed { step: 0, error };
        let pair = self.pair().map_err(at_first)?;
        let requests: Vec<Request> = steps
            .iter()
            .filter_map(|step| request(step, side, &pair))
            .collect();
        let answers = self
            .socket(side)
            .and_then(|socket| socket.batch(&requests))
            .map_err(at_first)?;
        answers
            .into_iter()
            .enumerate()
            .try_for_each(|(step, answer)| match answer {
                // A kernel, or a link with too small an MTU, may be without IPv6.
                Err(error)
                    if error.errno() == Some(Errno::EAFNOSUPPORT)
                        && matches!(steps.get(step), Some(Step::NoLinkLocal(_))) =>
                {
                    Ok(())
                }
                answer => answer.map_err(|error| Failed { step, error }),
            })
    }
}

/// How a step is carried out; neighbouring steps of one kind go together.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Create,
    File(Side),
    Message(Side),
}

fn way(step: &Step) -> Way {
    match step {
        Step::CreatePair { .. } => Way::Create,
        Step::Set(side, _) => Way::File(*side),
        Step::Address(_) => Way::Message(Side::Pod),
        Step::NoRedirects => Way::Message(Side::Host),
        Step::NoLinkLocal(side)
        | Step::Up(side, _)
        | Step::Neighbour(side, ..)
        | Step::Route(side, _) => Way::Message(*side),
        // From here one can look into the pod, too.
        Step::Settle(_) => Way::Message(Side::Host),
    }
}

/// The message, to be sent from `from`, for a step that is one.
fn request(step: &Step, from: Side, pair: &Pair) -> Option<Request> {
    let End { index, name } = pair.end(from);
    let (index, name) = (*index, name.as_str());
    match step {
        Step::CreatePair { .. } | Step::Set(..) => None,
        Step::Settle(Side::Host) => Some(link::look(index, name)),
        Step::Settle(Side::Pod) => {
            let End { index, name } = &pair.pod;
            Some(link::look_into(pair.pod_netns, *index, name))
        }
        Step::NoLinkLocal(_) => Some(link::Change::of(index, name).without_link_local().request()),
        Step::NoRedirects => Some(link::Change::of(index, name).without_redirects().request()),
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
        Step::Route(_, route) => {
            let mut route = route.clone();
            route.out = Some(index);
            Some(route::add(&route))
        }
    }
}

impl Kernel for LinuxKernel {
    fn open_pod(&mut self, path: &Path) -> Result<(), NetnsError> {
        let named = || path.display().to_string();
        // A FIFO, opened to read, would wait for a writer for ever.
        let netns = OpenOptions::new()
            .read(true)
            .custom_flags(O_NONBLOCK)
            .open(path)
            .map_err(|error| Error {
                operation: "open",
                object: format!("the network namespace {}", path.display()),
                cause: error.into(),
            })?;
        let home = Home::of(self.host()?)?;
        if home.is(netns.as_fd())? {
            return Err(NetnsError::TheHosts(named()));
        }
        // Entering is the test: the kernel lets nobody into a file that is no
        // network namespace.
        let socket = home
            .visit(netns.as_fd(), Socket::open)
            .and_then(|socket| socket)
            .map_err(|error| match error.errno() {
                Some(Errno::EINVAL) => NetnsError::NotANetns(named()),
                _ => error.into(),
            })?;
        self.pod = Some(Pod {
            netns,
            home,
            socket,
        });
        self.pair = None;
        Ok(())
    }

    fn apply(&mut self, steps: &[Step]) -> Result<Vec<String>, Failed> {
        let mut notes = Vec::new();
        let mut done = 0;
        while let Some(first) = steps.get(done) {
            let rest = &steps[done..];
            let length = rest
                .iter()
                .take_while(|step| way(step) == way(first))
                .count();
            let group = &rest[..length];
            match first {
                Step::CreatePair { host, pod } => self
                    .create(host, pod)
                    .map_err(|error| Failed { step: 0, error }),
                Step::Set(side, _) => {
                    let settings: Vec<Setting> = group
                        .iter()
                        .filter_map(|step| match step {
                            Step::Set(_, setting) => Some(*setting),
                            _ => None,
                        })
                        .collect();
                    self.set(*side, &settings).map(|more| notes.extend(more))
                }
                Step::Address(_) => self.send(Side::Pod, group),
                Step::NoRedirects | Step::Settle(_) => self.send(Side::Host, group),
                Step::NoLinkLocal(side)
                | Step::Up(side, _)
                | Step::Neighbour(side, ..)
                | Step::Route(side, _) => self.send(*side, group),
            }
            .map_err(|failed| Failed {
                step: done + failed.step,
                error: failed.error,
            })?;
            done += length;
        }
        Ok(notes)
    }

    fn host_link(&mut self, name: &str) -> Result<Option<Link>, Error> {
        link::by_name(self.host()?, name)
    }

    fn host_links(&mut self) -> Result<Vec<Link>, Error> {
        link::list(self.host()?)
    }

    fn delete_host_link(&mut self, link: &Link) -> Result<(), Error> {
        match self.host()?.execute(&link::delete(link.index, &link.name)) {
            Err(error) if error.is_absent() => Ok(()),
            answer => answer,
        }
    }

    fn put_aside(&mut self, link: &Link, aside: &Aside<'_>) -> Result<(), Error> {
        let change = link::Change::of(link.index, &link.name)
            .rename(aside.name)
            .group(LEAVING_LINK_GROUP)
            .alias(aside.alias);
        let answers = self.host()?.batch(&aside_requests(link, change))?;
        match answers.into_iter().find_map(Result::err) {
            None => Ok(()),
            Some(error) if error.is_absent() => Ok(()),
            // One of the same names is still on its way out: after DEL, ADD and
            // DEL within a moment.
            Some(error) if error.is_present() => self.delete_host_link(link),
            Some(error) => Err(error),
        }
    }

    fn finish_leaving(&mut self, folder: &Path) -> Result<(), Error> {
        if self.finishes_behind && finisher::call(folder).is_ok() {
            return Ok(());
        }
        finisher::finish(self.host()?)
    }

    fn pod_has_link(&mut self, name: &str) -> Result<bool, Error> {
        Ok(link::by_name(&mut self.pod()?.socket, name)?.is_some())
    }

    fn host_routes_to(&mut self, ip: IpAddr) -> Result<Vec<(route::Route, Option<Link>)>, Error> {
        let socket = self.host()?;
        let all = route::list(socket, None)?;
        let mut found = Vec::new();
        for route in all
            .into_iter()
            .filter(|route| route.destination == ip.into())
        {
            let link = match route.out {
                Some(index) => link::by_index(socket, index)?,
                None => None,
            };
            found.push((route, link));
        }
        Ok(found)
    }

    fn observe(&mut self, host: &str, pod: &str) -> Result<Observed, Error> {
        let mut observed = Observed::default();
        let socket = self.host()?;
        observed.host = link::by_name(socket, host)?;
        if let Some(link) = &observed.host {
            observed.host_routes = routes_by(socket, link.index)?;
            observed.host_neighbours = neighbour::list(socket, link.index)?;
        }
        let socket = &mut self.pod()?.socket;
        observed.pod = link::by_name(socket, pod)?;
        if let Some(link) = &observed.pod {
            let all = address::list(socket)?;
            observed.pod_addresses = all.into_iter().filter(|a| a.index == link.index).collect();
            observed.pod_routes = routes_by(socket, link.index)?;
            observed.pod_neighbours = neighbour::list(socket, link.index)?;
        }
        Ok(observed)
    }
}

/// Switches a link off, then changes what only one that is off lets be changed
/// (its name, before Linux 6.2).
fn aside_requests(link: &Link, then: link::Change) -> [Request; 2] {
    let down = link::Change::of(link.index, &link.name).down();
    [down.request(), then.request()]
}

fn routes_by(socket: &mut Socket, index: u32) -> Result<Vec<route::Route>, Error> {
    let all = route::list(socket, None)?;
    Ok(all
        .into_iter()
        .filter(|route| route.out == Some(index))
        .collect())
}

/// Writes settings of one link. A setting need not be there: a kernel, or a link
/// with too small an MTU, may be without IPv6. Where it cannot be written and is
/// something else, a read-only `/proc/sys` is let pass and reported, as the node's
/// rules hold too; anything else is an error.
fn write_settings(link: &str, settings: &[Setting]) -> Result<Vec<String>, Failed> {
    let path = format!("/proc/sys/net/ipv6/conf/{link}");
    // Opened once: looking a path up costs more than the setting.
    let folder = OpenOptions::new()
        .read(true)
        .custom_flags(O_PATH | O_DIRECTORY)
        .open(&path);
    let folder = match folder {
        Ok(folder) => folder,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => {
            let error = Error {
                operation: "open",
                object: path,
                cause: error.into(),
            };
            return Err(Failed { step: 0, error });
        }
    };
    let mut notes = Vec::new();
    for (step, setting) in settings.iter().enumerate() {
        let note = write_setting(&folder, &path, *setting);
        notes.extend(note.map_err(|error| Failed { step, error })?);
    }
    Ok(notes)
}

fn write_setting(folder: &File, path: &str, setting: Setting) -> Result<Option<String>, Error> {
    // Without O_CREAT: what is missing would be "not permitted" below /proc, not
    // "not found".
    let open = |access| {
        openat(
            folder,
            setting.key,
            access | OFlag::O_CLOEXEC,
            Mode::empty(),
        )
        .map(File::from)
    };
    let written = open(OFlag::O_WRONLY)
        .map_err(io::Error::from)
        .and_then(|mut file| file.write_all(setting.value.as_bytes()));
    let Err(error) = written else {
        return Ok(None);
    };
    if error.kind() == io::ErrorKind::NotFound {
        return Ok(None);
    }
    let mut found = String::new();
    let read = open(OFlag::O_RDONLY)
        .map_err(io::Error::from)
        .and_then(|mut file| file.read_to_string(&mut found));
    if read.is_ok() && found.trim() == setting.value {
        return Ok(None);
    }
    let path = format!("{path}/{}", setting.key);
    if error.kind() == io::ErrorKind::ReadOnlyFilesystem {
        return Ok(Some(format!(
            "{path} stays {:?}: it should be {:?}, but /proc/sys is read-only here",
            found.trim(),
            setting.value
        )));
    }
    Err(Error {
        operation: "write",
        object: format!("{:?} to {path}", setting.value),
        cause: error.into(),
    })
}

fn not_there(operation: &'static str, object: &str) -> Error {
    Error {
        operation,
        object: object.to_owned(),
        cause: Cause::Io(io::ErrorKind::NotFound.into()),
    }
}
