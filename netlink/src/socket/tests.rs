//! A kernel that misbehaves: the other end of a pair of sockets, which answers as the
//! test says. What it answers is in its buffer before it is read, so nothing here
//! depends on time.

mod conntrack;
mod nf_tables;

use std::cell::Cell;
use std::fs::File;
use std::net::IpAddr;
use std::os::fd::{AsFd as _, AsRawFd, FromRawFd, IntoRawFd, OwnedFd};

use ipnetwork::IpNetwork;
use netlink_packet_core::{NLM_F_DUMP_INTR, NLM_F_MULTIPART};
use netlink_packet_route::RouteNetlinkMessage;
use nix::sys::socket::sockopt::RcvBuf;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, send, socketpair};
use tweed_core::family::Family;
use tweed_core::mac::Mac;

use super::*;
use crate::rt::{Rtnetlink, address, fdb, link, neighbour, path, route, rule};

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const RTM_NEWLINK: u16 = 16;

type Request = crate::request::Request<Rtnetlink>;

/// The end of the pair that stands for the kernel.
struct Kernel(OwnedFd);

impl Kernel {
    /// Puts a datagram of messages into the socket's receive buffer.
    fn sends(&self, messages: &[Vec<u8>]) {
        let datagram = messages.concat();
        let sent = send(self.0.as_raw_fd(), &datagram, MsgFlags::MSG_DONTWAIT);
        assert_eq!(sent, Ok(datagram.len()));
    }

    /// The sequence numbers of the requests in each datagram so far.
    fn was_asked(&self) -> Vec<Vec<u32>> {
        let mut datagrams = Vec::new();
        let mut buffer = vec![0; RECEIVE_BUFFER];
        while let Ok(length) = recv(self.0.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
            let requests = messages(&buffer[..length]).map(Result::unwrap);
            let number = |message| NetlinkBuffer::new(message).sequence_number();
            datagrams.push(requests.map(number).collect());
        }
        datagrams
    }
}

#[expect(unsafe_code, reason = "there is no other way to make such a socket")]
fn socket_and_kernel<P: Protocol>() -> (Socket<P>, Kernel) {
    let pair = socketpair(
        AddressFamily::Unix,
        SockType::SeqPacket,
        None,
        SockFlag::SOCK_CLOEXEC,
    );
    let (ours, kernels) = pair.unwrap();
    setsockopt(&ours, ReceiveTimeout, &TimeVal::new(0, 1000)).unwrap();
    let socket = Socket {
        // SAFETY: the descriptor is open, and nobody else owns it any more.
        inner: unsafe { netlink_sys::Socket::from_raw_fd(ours.into_raw_fd()) },
        sequence: 0,
        received: Vec::with_capacity(RECEIVE_BUFFER),
        changes_sent: 0,
        protocol: PhantomData,
    };
    (socket, Kernel(kernels))
}

fn message(kind: u16, flags: u16, sequence: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend((16 + payload.len() as u32).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    bytes.extend(0u32.to_ne_bytes());
    bytes.extend(payload);
    bytes
}

/// A link of this index: all that `ifinfomsg` says.
fn link_of(index: u32, flags: u16, sequence: u32) -> Vec<u8> {
    let mut payload = vec![0; 16];
    payload[4..8].copy_from_slice(&index.to_ne_bytes());
    message(RTM_NEWLINK, flags, sequence, &payload)
}

fn done(flags: u16, sequence: u32) -> Vec<u8> {
    message(NLMSG_DONE, flags, sequence, &0i32.to_ne_bytes())
}

/// An acknowledgement, or a refusal.
fn answer(errno: i32, sequence: u32) -> Vec<u8> {
    let mut payload = (-errno).to_ne_bytes().to_vec();
    payload.extend([0; 16]);
    message(NLMSG_ERROR, 0, sequence, &payload)
}

fn all_links() -> Request {
    let message = RouteNetlinkMessage::GetLink(netlink_packet_route::link::LinkMessage::default());
    Request::dump("list", "links".to_owned(), message)
}

fn indices(links: &[RouteNetlinkMessage]) -> Vec<u32> {
    let index = |message: &RouteNetlinkMessage| match message {
        RouteNetlinkMessage::NewLink(link) => link.header.index,
        other => panic!("{other:?}"),
    };
    links.iter().map(index).collect()
}

#[test]
fn a_dump_that_was_interrupted_is_asked_for_again_and_only_the_whole_one_counts() {
    let (mut socket, kernel) = socket_and_kernel::<Rtnetlink>();
    let flags = NLM_F_MULTIPART;
    // The kernel marks the messages from the change on. The first try is interrupted in
    // its middle, the second is refused.
    kernel.sends(&[link_of(7, flags, 1), link_of(8, flags | NLM_F_DUMP_INTR, 1)]);
    kernel.sends(&[link_of(9, flags, 1), done(flags, 1)]);
    kernel.sends(&[answer(Errno::EINTR as i32, 2)]);
    kernel.sends(&[link_of(1, flags, 3), link_of(2, flags, 3)]);
    kernel.sends(&[done(flags, 3)]);
    let links = socket.dump(&all_links()).unwrap();
    assert_eq!(indices(&links), [1, 2]);
    assert_eq!(kernel.was_asked(), [[1], [2], [3]]);
}

#[test]
fn the_change_that_only_the_end_of_a_dump_tells_of_counts() {
    let (mut socket, kernel) = socket_and_kernel::<Rtnetlink>();
    let flags = NLM_F_MULTIPART;
    kernel.sends(&[link_of(7, flags, 1), done(flags | NLM_F_DUMP_INTR, 1)]);
    kernel.sends(&[link_of(1, flags, 2), done(flags, 2)]);
    assert_eq!(indices(&socket.dump(&all_links()).unwrap()), [1]);
}

#[test]
fn a_dump_that_is_interrupted_each_time_is_an_error_and_the_next_one_works() {
    let (mut socket, kernel) = socket_and_kernel::<Rtnetlink>();
    let flags = NLM_F_MULTIPART;
    for sequence in 1..=DUMP_TRIES {
        kernel.sends(&[
            link_of(7, flags | NLM_F_DUMP_INTR, sequence),
            done(flags, sequence),
        ]);
    }
    let error = socket.dump(&all_links()).unwrap_err();
    assert!(
        matches!(error.cause, Cause::Interrupted(DUMP_TRIES)),
        "{error}"
    );
    assert_eq!(kernel.was_asked().len(), DUMP_TRIES as usize);
    let next = DUMP_TRIES + 1;
    kernel.sends(&[link_of(1, flags, next), done(flags, next)]);
    assert_eq!(indices(&socket.dump(&all_links()).unwrap()), [1]);
}

/// What a kernel sends that answers a dump, a change, a look, and two changes of a batch
/// under these sequence numbers. The links have this index.
fn answers_from(kernel: &Kernel, first: u32, errno: i32, index: u32) {
    kernel.sends(&[
        link_of(index, NLM_F_MULTIPART, first),
        done(NLM_F_MULTIPART, first),
    ]);
    kernel.sends(&[answer(errno, first + 1)]);
    kernel.sends(&[link_of(index, 0, first + 2)]);
    kernel.sends(&[answer(errno, first + 3), answer(errno, first + 4)]);
}

#[test]
fn an_answer_that_comes_after_the_time_out_answers_nothing_else() {
    let (mut socket, kernel) = socket_and_kernel::<Rtnetlink>();
    let timed_out = |error: &Error| matches!(error.cause, Cause::TimedOut);
    let changes = [link::delete(7, "a"), link::delete(8, "b")];
    let get = Request::get(
        "look up",
        "link 7".to_owned(),
        all_links().message().clone(),
    );
    let mut round = |round: u32, answered: bool| {
        let dump = socket.dump(&all_links());
        let change = socket.execute(&changes[0]);
        let got = socket.get(&get);
        let batch = socket.batch(&changes);
        if !answered {
            assert!(timed_out(&dump.unwrap_err()));
            assert!(timed_out(&change.unwrap_err()));
            assert!(timed_out(&got.unwrap_err()));
            assert!(timed_out(&batch.unwrap_err()));
            return;
        }
        assert_eq!(indices(&dump.unwrap()), [round]);
        change.unwrap();
        assert_eq!(indices(&[got.unwrap()]), [round]);
        assert!(batch.unwrap().iter().all(Result::is_ok));
    };
    round(1, false);
    // The late answers, all of them wrong ones, precede the right ones.
    answers_from(&kernel, 1, Errno::EPERM as i32, 1);
    answers_from(&kernel, 6, 0, 2);
    round(2, true);
    assert_eq!(kernel.was_asked().len(), 8);
}

/// The batch is the first that finds them: nothing has read them before.
#[test]
fn late_answers_to_a_batch_answer_nothing_in_the_next() {
    let (mut socket, kernel) = socket_and_kernel();
    let changes = [link::delete(7, "a"), link::delete(8, "b")];
    assert!(socket.batch(&changes).is_err());
    let refused = Errno::EPERM as i32;
    kernel.sends(&[answer(refused, 1), answer(refused, 2)]);
    kernel.sends(&[answer(0, 3), answer(0, 4)]);
    let answers = socket.batch(&changes).unwrap();
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
}

/// Sends a request.
type Ask = Box<dyn Fn(&mut Socket<Rtnetlink>) -> Result<(), Error>>;

/// A request of each kind that tweed sends, with its name.
fn requests() -> Vec<(&'static str, Ask)> {
    let network: IpNetwork = "192.0.2.1/24".parse().unwrap();
    let near: IpAddr = "192.0.2.9".parse().unwrap();
    let mac = Mac([2, 0, 0, 0, 0, 7]);
    let vxlan = link::Vxlan::nolearning(1, 8472, near);
    let to = route::Route::to(network, 116);
    let to6 = route::Route::to("2001:db8::/64".parse().unwrap(), 116);
    let end = link::VethEnd {
        name: "x".to_owned(),
        mac,
        mtu: 1450,
        group: 116,
        noarp: true,
    };
    let here = File::open("/proc/self/ns/net").unwrap();
    let veth = link::create_veth(&end, &end, here.as_fd());
    let created = veth.clone();
    let changes = [
        (
            "create VXLAN device",
            link::create_vxlan("x", mac, 1450, &vxlan),
        ),
        ("create veth pair", veth),
        ("delete link", link::delete(7, "x")),
        ("delete links of a group", link::delete_group(117)),
        ("change link", link::Change::of(7, "x").up().request()),
        ("look", link::look(7, "x")),
        ("look elsewhere", link::look_into(3, 7, "x")),
        ("add address", address::add(7, "x", network)),
        ("delete address", address::delete(7, "x", network)),
        ("add route", route::add(&to)),
        ("append route", route::append(&to)),
        ("delete route", route::delete(&to)),
        ("add IPv6 route", route::add(&to6)),
        ("append IPv6 route", route::append(&to6)),
        ("delete IPv6 route", route::delete(&to6)),
        ("set neighbour", neighbour::set(7, "x", near, mac)),
        ("delete neighbour", neighbour::delete(7, "x", near)),
        ("set FDB entry", fdb::set(7, "x", mac, near)),
        ("delete FDB entry", fdb::delete(7, "x", mac)),
    ];
    let mut all: Vec<(&'static str, Ask)> = vec![
        ("list links", Box::new(|s| link::list(s).map(drop))),
        ("find link", Box::new(|s| link::by_index(s, 7).map(drop))),
        ("find name", Box::new(|s| link::by_name(s, "x").map(drop))),
        (
            "create and read",
            Box::new(move |s| link::create(s, &created).map(drop)),
        ),
        ("list addresses", Box::new(|s| address::list(s).map(drop))),
        (
            "list a link's addresses",
            Box::new(|s| address::of_link(s, 7).map(drop)),
        ),
        (
            "list rules",
            Box::new(|s| rule::list(s, Family::V4).map(drop)),
        ),
        (
            "list a link's main routes",
            Box::new(|s| route::main_of_link(s, 7).map(drop)),
        ),
        (
            "list a link's routes",
            Box::new(|s| route::of_link(s, 7).map(drop)),
        ),
        (
            "list routes",
            Box::new(|s| route::list(s, Some(116)).map(drop)),
        ),
        (
            "list neighbours",
            Box::new(|s| neighbour::list(s, 7).map(drop)),
        ),
        (
            "list all neighbours",
            Box::new(|s| neighbour::list_all(s).map(drop)),
        ),
        ("list FDB entries", Box::new(|s| fdb::list(s, 7).map(drop))),
        (
            "find path",
            Box::new(move |s| path::lookup(s, near, None, None).map(drop)),
        ),
    ];
    for (name, request) in changes {
        let each = request.clone();
        all.push((name, Box::new(move |s| s.execute(&request))));
        // The error of one among others.
        all.push((
            name,
            Box::new(move |s| {
                let batch = [each.clone(), each.clone(), each.clone()];
                let answers = s.batch(&batch)?;
                assert_eq!(answers.iter().filter(|a| a.is_err()).count(), 1);
                answers.into_iter().collect()
            }),
        ));
    }
    all
}

#[test]
fn each_kind_of_request_reports_each_error_and_the_next_request_works() {
    for errno in [
        Errno::EPERM,
        Errno::ENOMEM,
        Errno::ENOBUFS,
        Errno::EBUSY,
        Errno::EINVAL,
        Errno::EIO,
    ] {
        let (mut socket, kernel) = socket_and_kernel::<Rtnetlink>();
        let sequence = Cell::new(0);
        for (name, ask) in requests() {
            let before = socket.sequence;
            // Whichever request of a batch it is.
            kernel.sends(&[answer(errno as i32, before + 1)]);
            kernel.sends(&[answer(0, before + 3)]);
            let error = ask(&mut socket).unwrap_err();
            assert_eq!(error.errno(), Some(errno), "{name}: {error}");
            assert!(!error.object.is_empty(), "{name}: {error}");
            let text = error.to_string();
            assert!(text.ends_with(errno.desc()), "{name}: {text}");
            sequence.set(socket.sequence);
            // What the kernel sent besides is nobody's answer.
            let next = sequence.get() + 1;
            kernel.sends(&[
                link_of(5, NLM_F_MULTIPART, next),
                done(NLM_F_MULTIPART, next),
            ]);
            assert_eq!(indices(&socket.dump(&all_links()).unwrap()), [5], "{name}");
        }
    }
}

#[test]
fn answers_that_do_not_fit_into_the_buffer_are_an_error_and_the_next_request_works() {
    let mut socket = Socket::<Rtnetlink>::open().unwrap();
    // The kernel takes its minimum.
    setsockopt(&socket.inner, RcvBuf, &1).unwrap();
    // Nobody has such a link, and without root nobody may delete it.
    let refused = vec![link::delete(u32::MAX >> 1, "none"); BATCH];
    let error = socket.batch(&refused).unwrap_err();
    assert_eq!(error.errno(), Some(Errno::ENOBUFS), "{error}");
    let links = socket.dump(&all_links()).unwrap();
    assert!(indices(&links).contains(&1), "{links:?}");
}
