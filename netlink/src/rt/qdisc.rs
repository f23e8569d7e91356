//! Queueing disciplines of links. Only read.

use std::borrow::Cow;

use netlink_packet_route::RouteNetlinkMessage::{GetQueueDiscipline, NewQueueDiscipline};
use netlink_packet_route::tc::{TcAttribute, TcMessage};

use super::attributes::{next_attribute, number_at, rename};
use crate::answer::NLMSG_HEADER;
use crate::error::Error;
use crate::rt::{Request, Socket};

// Of include/uapi/linux/rtnetlink.h.
const RTM_NEWQDISC: u16 = 36;
const TCA_KIND: u16 = 1;
/// Bytes of a message about one between its header and its attributes.
const BODY: usize = 20;

/// A queueing discipline of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Qdisc {
    /// Index of its link.
    pub link: u32,
    /// `noqueue`, `tbf`, `clsact`, …
    pub kind: String,
}

impl Qdisc {
    /// Whether it leads packets that come in by its link to filters.
    #[must_use]
    pub fn is_ingress(&self) -> bool {
        matches!(self.kind.as_str(), "ingress" | "clsact")
    }

    /// Whether it is the kernel's for a link without queues.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.kind == "noqueue"
    }
}

/// `message` without what is special to a kind: the decoder knows a few, and nothing of it is
/// read.
pub(super) fn without_options(message: Cow<'_, [u8]>) -> Cow<'_, [u8]> {
    if number_at(&message, 4) != Some(RTM_NEWQDISC) {
        return message;
    }
    let mut others = Vec::new();
    let mut range = NLMSG_HEADER + BODY..message.len();
    while let Some((kind, value)) = next_attribute(&message, &mut range) {
        if kind != TCA_KIND {
            others.push(value.start);
        }
    }
    rename(message, &others)
}

/// Those of all links.
///
/// # Errors
/// When the kernel cannot be asked.
pub fn list(socket: &mut Socket) -> Result<Vec<Qdisc>, Error> {
    let message = GetQueueDiscipline(TcMessage::default());
    let request = Request::dump("list", "queueing disciplines".to_owned(), message);
    let objects = socket.dump(&request)?;
    let found = objects.iter().filter_map(|object| match object {
        NewQueueDiscipline(message) => parse(message),
        _ => None,
    });
    Ok(found.collect())
}

fn parse(message: &TcMessage) -> Option<Qdisc> {
    let kind = message
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            TcAttribute::Kind(kind) => Some(kind.clone()),
            _ => None,
        });
    Some(Qdisc {
        link: u32::try_from(message.header.index).ok()?,
        kind: kind?,
    })
}
