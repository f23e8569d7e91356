//! rtnetlink: links and their queues, addresses, routes and where they lead, routing
//! rules, neighbours and FDB entries.

pub mod address;
mod attributes;
pub mod fdb;
pub mod link;
mod link_data;
pub mod neighbour;
mod notification;
pub mod path;
pub mod qdisc;
pub mod route;
pub mod rule;
mod texts;

use std::borrow::Cow;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::protocols::NETLINK_ROUTE;

pub use notification::Notification;

use crate::protocol::Protocol;

/// The protocol rtnetlink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rtnetlink;

impl Protocol for Rtnetlink {
    const NUMBER: isize = NETLINK_ROUTE;
    const NAME: &'static str = "rtnetlink";
    type Message = RouteNetlinkMessage;

    fn decodable(message: &[u8]) -> Cow<'_, [u8]> {
        let message = link_data::without_foreign_data(texts::with_valid_texts(message));
        qdisc::without_options(message)
    }
}

/// A connection to a namespace's rtnetlink.
pub type Socket = crate::socket::Socket<Rtnetlink>;
/// A request about links, addresses, routes, neighbours or FDB entries.
pub type Request = crate::request::Request<Rtnetlink>;
/// Reads the notifications about all of them.
pub type Monitor = crate::monitor::Monitor<Rtnetlink>;

impl Request {
    /// Whether it deletes something: then it is no failure if that is gone already.
    pub fn is_deletion(&self) -> bool {
        matches!(
            self.message,
            RouteNetlinkMessage::DelLink(_)
                | RouteNetlinkMessage::DelAddress(_)
                | RouteNetlinkMessage::DelRoute(_)
                | RouteNetlinkMessage::DelNeighbour(_)
        )
    }
}
