//! `agent.sock`: a request that the agent reads, and the answers that the plugin and
//! `tweedctl` read.

use tweed_component::message::{Answer, Request};
use tweed_core::agent_socket::message::{self as plugin, Message};

/// The same bytes as a request and as an answer to each.
pub fn check(input: &[u8]) {
    check_as::<Request>(input);
    check_as::<Answer>(input);
    check_as::<plugin::Answer>(input);
}

/// A message that is read is within its limit, what follows its line changes nothing,
/// and written it is one line that is read back the same. What is not read yet can
/// still become a message.
fn check_as<M: Message + PartialEq + std::fmt::Debug>(input: &[u8]) {
    let message = match M::from_received(input) {
        Ok(Some(message)) => message,
        Ok(None) => {
            assert!(input.len() <= M::MAX_LENGTH && !input.contains(&b'\n'));
            return;
        }
        Err(_) => return,
    };
    let end = input.iter().position(|byte| *byte == b'\n');
    let line = &input[..=end.expect("a message is a line")];
    assert!(line.len() <= M::MAX_LENGTH);
    let again = M::from_received(line).expect("it was read before");
    assert_eq!(again.as_ref(), Some(&message));
    // Written it may be longer than it was: an escape for a character.
    let Ok(written) = message.to_line() else {
        return;
    };
    assert_eq!(
        written.iter().position(|byte| *byte == b'\n'),
        Some(written.len() - 1)
    );
    let read = M::from_received(&written).expect("what was written is read");
    assert_eq!(read, Some(message));
}
