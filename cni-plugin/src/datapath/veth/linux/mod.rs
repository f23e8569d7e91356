//! The real kernel: two netlink sockets and `/proc/sys/net`.
//!
//! An ADD costs four round trips: create the pair (the kernel answers with the
//! host's end, which has the index of its peer and the ID of the peer's namespace),
//! list the pod's addresses ([`other_network`]), one batch inside the pod, one on the
//! host, at whose end both ends are queried. Before Linux 6.2 the kernel does not
//! return the host's end, and it is looked up.

mod apply;
mod forwarding;
mod other_network;
mod settings;

use std::fs::{File, OpenOptions};
use std::{io, net::IpAddr, os::fd::AsFd, os::unix::fs::OpenOptionsExt, path::Path};

use nix::{errno::Errno, libc::O_NONBLOCK};
use tweed_cni::{CniError, Code};
use tweed_core::{family::Family, ownership::LEAVING_LINK_GROUP};
use tweed_netlink::link::{self, Link};
use tweed_netlink::{Cause, Error, Request, Socket, address, neighbour, netns::Home, owned, route};

use super::plan::{Side, Step};
use super::{Applied, Failed, Kernel, Observed, cleanup};

/// The calling thread's namespace and, once opened, a pod's.
#[derive(Debug, Default)]
pub struct LinuxKernel {
    host: Option<Socket>,
    pod: Option<Pod>,
    pair: Option<Pair>,
    background_cleanup: bool,
}

#[derive(Debug)]
struct Pod {
    netns: File,
    home: Home,
    socket: Socket,
}

/// One end of the pair that this process has created.
#[derive(Debug, Clone)]
struct End {
    index: u32,
    name: String,
}

#[derive(Debug, Clone)]
struct Pair {
    host: End,
    pod: End,
    /// The ID of the pod's namespace in the host's.
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
    /// A kernel whose leaving links are deleted by another process of the calling
    /// program, which must begin with
    /// [`run_cleanup_if_requested`](super::run_cleanup_if_requested). The default
    /// deletes them itself, and waits.
    pub fn with_background_cleanup() -> Self {
        Self {
            background_cleanup: true,
            ..Self::default()
        }
    }

    fn host(&mut self) -> Result<&mut Socket, Error> {
        match self.host {
            Some(ref mut socket) => Ok(socket),
            None => Ok(self.host.insert(Socket::open()?)),
        }
    }

    /// Whether this process has come back from the pod's namespace.
    fn is_at_home(&mut self) -> Result<bool, Error> {
        Home::of_socket(self.host()?)?.is_current()
    }

    fn pod(&mut self) -> Result<&mut Pod, Error> {
        self.pod
            .as_mut()
            .ok_or_else(|| not_found("open", "the pod's network namespace"))
    }

    /// Whether a link of the host and one of the pod are the ends of one pair. That each
    /// names the other's index is not enough, as both may mean links of third
    /// namespaces: what is at the other end of the host's must be the pod's.
    fn is_pair(&mut self, host: &Link, pod: &Link) -> Result<bool, Error> {
        if host.peer != Some(pod.index) || pod.peer != Some(host.index) {
            return Ok(false);
        }
        let end = link::peer_elsewhere(self.host()?, host)?;
        Ok(end.is_some_and(|end| end.name == pod.name && end.mac == pod.mac))
    }

    /// Renames the pod's end of a leaving link and removes its routes, in whichever table,
    /// so that neither is in the way of the next attachment. It is not set down for that, which would
    /// cost one more of the kernel's grace periods: the other end is down, so nothing
    /// passes. Before Linux 6.2 a link that is up cannot be renamed.
    fn put_aside(&mut self, end: &Link, host: &Link, name: &str) -> Result<(), Error> {
        let socket = &mut self.pod()?.socket;
        let rename = link::Change::of(end.index, &end.name).rename(name);
        let routes = route::of_link(socket, end.index)?;
        let mut requests: Vec<Request> = routes.iter().map(route::delete).collect();
        requests.push(rename.clone().request());
        let mut renamed = socket.batch(&requests)?.pop().unwrap_or(Ok(()));
        if matches!(&renamed, Err(error) if error.errno() == Some(Errno::EBUSY)) {
            let answers = socket.batch(&down_and(end, rename))?;
            renamed = answers.into_iter().collect();
        }
        match renamed {
            Err(error) if error.is_absent() => Ok(()),
            // The end of an earlier leaving link may have that name in the pod.
            Err(_) => self.delete_host_link(host),
            Ok(()) => Ok(()),
        }
    }

    fn pair(&self) -> Result<Pair, Error> {
        self.pair
            .clone()
            .ok_or_else(|| not_found("look at", "the pair of links"))
    }
}

impl Kernel for LinuxKernel {
    fn open_pod(&mut self, path: &Path) -> Result<(), CniError> {
        let named = path.display();
        let unusable =
            |problem: String| CniError::new(Code::InvalidNetns, format!("CNI_NETNS: {problem}"));
        let failed = |error: Error| unusable(error.to_string());
        // Without O_NONBLOCK, opening a FIFO would wait for a writer.
        let netns = OpenOptions::new()
            .read(true)
            .custom_flags(O_NONBLOCK)
            .open(path)
            .map_err(|error| {
                unusable(format!(
                    "cannot open the network namespace {named}: {error}"
                ))
            })?;
        let home = self
            .host()
            .and_then(|socket| Home::of_socket(socket))
            .map_err(failed)?;
        if home.is(netns.as_fd()).map_err(failed)? {
            return Err(unusable(format!(
                "{named} is the host's own network namespace: a pod with host networking needs no CNI"
            )));
        }
        // Entering is the test: the kernel refuses to enter a file that is not a
        // network namespace.
        let socket = home
            .visit(netns.as_fd(), Socket::open)
            .and_then(|socket| socket)
            .map_err(|error| match error.errno() {
                Some(Errno::EINVAL) => unusable(format!("{named} is not a network namespace")),
                _ => failed(error),
            })?;
        self.pod = Some(Pod {
            netns,
            home,
            socket,
        });
        self.pair = None;
        Ok(())
    }

    fn apply(&mut self, steps: &[Step]) -> Result<Applied, Failed> {
        self.apply_steps(steps)
    }

    fn enable_forwarding(&mut self, family: Family) -> Result<bool, Error> {
        forwarding::enable(Path::new(forwarding::NET), family)
    }

    fn forget_enforcement(&mut self, address: IpAddr) -> Result<(), Error> {
        owned::forget_enforcement(address)
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

    fn mark_leaving(&mut self, link: &Link, name: &str, alias: &str) -> Result<(), Error> {
        let change = link::Change::of(link.index, &link.name)
            .rename(name)
            .group(LEAVING_LINK_GROUP)
            .alias(alias);
        let answers = self.host()?.batch(&down_and(link, change))?;
        match answers.into_iter().find_map(Result::err) {
            None => Ok(()),
            Some(error) if error.is_absent() => Ok(()),
            // Another leaving link still has this name: after DEL, ADD and DEL of
            // the same attachment within a moment.
            Some(error) if error.is_present() => self.delete_host_link(link),
            Some(error) => Err(error),
        }
    }

    fn rename_pod_end(&mut self, ifname: &str, host: &Link, name: &str) -> Result<(), Error> {
        match link::by_name(&mut self.pod()?.socket, ifname)? {
            Some(end) if self.is_pair(host, &end)? => self.put_aside(&end, host, name),
            _ => Ok(()),
        }
    }

    fn delete_leaving(&mut self) -> Result<(), Error> {
        cleanup::delete_leaving(self.host()?)
    }

    fn delete_leaving_later(&mut self, folder: &Path) -> Result<(), Error> {
        // A process that is started inside the pod finds none of the host's links.
        let is_at_home = self.is_at_home().unwrap_or(false);
        if self.background_cleanup && is_at_home && cleanup::start(folder).is_ok() {
            return Ok(());
        }
        self.delete_leaving()
    }

    fn pod_has_link(&mut self, name: &str) -> Result<bool, Error> {
        Ok(link::by_name(&mut self.pod()?.socket, name)?.is_some())
    }

    fn host_routes_to(&mut self, ip: IpAddr) -> Result<Vec<(route::Route, Option<Link>)>, Error> {
        let socket = self.host()?;
        let mut found = Vec::new();
        for route in route::find(socket, None, |route| route.destination == ip.into())? {
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
            observed.host_routes = route::main_of_link(socket, link.index)?;
            observed.host_neighbours = neighbour::list(socket, link.index)?;
        }
        let socket = &mut self.pod()?.socket;
        observed.pod = link::by_name(socket, pod)?;
        if let Some(link) = &observed.pod {
            observed.pod_addresses = address::of_link(socket, link.index)?;
            observed.pod_routes = route::of_link(socket, link.index)?;
            observed.pod_neighbours = neighbour::list(socket, link.index)?;
        }
        Ok(observed)
    }
}

/// Sets a link down, then makes a change that the kernel allows only on a link
/// that is down (its name, before Linux 6.2).
fn down_and(link: &Link, then: link::Change) -> [Request; 2] {
    let down = link::Change::of(link.index, &link.name).down();
    [down.request(), then.request()]
}

fn not_found(operation: &'static str, object: &str) -> Error {
    Error {
        operation,
        object: object.to_owned(),
        cause: Cause::Io(io::ErrorKind::NotFound.into()),
    }
}
