//! What the kernel answers over nfnetlink: a datagram of messages of nf_tables, or of
//! entries of the table of connections.

use netlink_packet_core::{NetlinkHeader, NetlinkMessage, NetlinkPayload};
use tweed_agent::packet::Headers;
use tweed_netlink::answer::{decode_object, messages};
use tweed_netlink::monitor::Notify as _;
use tweed_netlink::nf::attributes::{Attributes, each, number, text};
use tweed_netlink::nf::conntrack::{self, Entry};
use tweed_netlink::nf::log::Logged;
use tweed_netlink::nf::verdict::Verdict;
use tweed_netlink::nf::{Message, NfTables};

/// How deep attributes are in each other: a table's rules nest half as deep.
const DEEPEST: usize = 16;

/// A message is written and read back the same, and so are its attributes and verdicts;
/// the request that deletes an entry of conntrack names that entry and no other.
/// A packet that was logged has the same headers if it is turned round twice.
pub fn check(input: &[u8]) {
    check_packet(input);
    for message in messages(input).map_while(Result::ok) {
        let object = decode_object::<NfTables>(message).ok();
        let _ = NfTables::read(0, object.clone());
        if let Some(object) = object {
            let _ = (object.number(), object.hook());
            assert_eq!(sent(&object), object);
            check_attributes(object.attributes.as_bytes(), DEEPEST);
            if let Some(logged) = Logged::read(&object) {
                check_packet(&logged.packet);
            }
            if let Some(entry) = Entry::read(&object) {
                check_entry(&entry);
            }
        }
    }
}

fn check_packet(bytes: &[u8]) {
    if let Some(headers) = Headers::parse(bytes) {
        assert_eq!(headers.reversed().reversed(), headers);
        assert_eq!(headers.source.is_ipv4(), headers.destination.is_ipv4());
        let _ = headers.to_string();
    }
}

fn check_entry(entry: &Entry) {
    let _ = entry.to_string();
    let request = conntrack::delete(entry);
    let asked = Entry::named_by(request.message()).expect("a deletion names a tuple");
    assert_eq!(asked, (entry.original, entry.zone, entry.id));
}

/// What the kernel would decode of a message.
fn sent(message: &Message) -> Message {
    let mut message = NetlinkMessage::new(
        NetlinkHeader::default(),
        NetlinkPayload::InnerMessage(message.clone()),
    );
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    decode_object::<NfTables>(&bytes).expect("a message is decoded")
}

fn check_attributes(bytes: &[u8], depth: usize) {
    let mut written = Attributes::new();
    for (kind, payload) in each(bytes) {
        let _ = (number(payload), text(payload));
        if let Some(verdict) = Verdict::read(payload) {
            let again = verdict.write();
            assert_eq!(Verdict::read(again.as_bytes()), Some(verdict));
        }
        if depth > 0 {
            check_attributes(payload, depth - 1);
        }
        written = written.bytes(kind, payload);
    }
    let read: Vec<_> = each(written.as_bytes()).collect();
    assert_eq!(read, each(bytes).collect::<Vec<_>>());
}
