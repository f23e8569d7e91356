//! Echo requests and their answers as bytes (RFC 792, RFC 4443).

/// Size of a message in bytes, the same as that of `ping`.
pub(super) const LENGTH: usize = 64;

/// The IP version, which determines the version of ICMP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    /// ICMP.
    V4,
    /// ICMPv6.
    V6,
}

impl Family {
    fn request(self) -> u8 {
        match self {
            Self::V4 => 8,
            Self::V6 => 128,
        }
    }

    fn answer(self) -> u8 {
        match self {
            Self::V4 => 0,
            Self::V6 => 129,
        }
    }
}

/// What the requests of one socket have in common. It identifies the socket's
/// answers: a raw socket also receives answers to the requests of other sockets.
#[derive(Debug, Clone, Copy)]
pub(super) struct Echo {
    family: Family,
    /// Identifier in the header; ICMP errors quote it.
    identifier: [u8; 2],
    /// Process and socket, in the payload.
    token: [u8; 8],
}

impl Echo {
    /// For this socket of this process, both identified by unique numbers.
    pub(super) fn new(family: Family, process: u32, socket: u32) -> Self {
        let [_, _, identifier @ ..] = process.wrapping_add(socket).to_be_bytes();
        Self {
            family,
            identifier,
            token: ((u64::from(process) << 32) | u64::from(socket)).to_be_bytes(),
        }
    }

    /// The request with this number. The header holds 16 bits of it, which repeat
    /// after 11 minutes; the payload holds all 32.
    pub(super) fn request(&self, number: u32) -> [u8; LENGTH] {
        let number = number.to_be_bytes();
        let [_, _, sequence @ ..] = number;
        let mut message = [0; LENGTH];
        message[0] = self.family.request();
        message[4..6].copy_from_slice(&self.identifier);
        message[6..8].copy_from_slice(&sequence);
        message[8..16].copy_from_slice(&self.token);
        message[16..20].copy_from_slice(&number);
        // The kernel replaces it for ICMPv6, where it also covers the addresses.
        let checksum = checksum(&message).to_be_bytes();
        message[2..4].copy_from_slice(&checksum);
        message
    }

    /// The number of the request that a packet answers; `None` if it is not an
    /// answer to a request of this socket. A raw socket receives IPv4 packets with
    /// their IP header, and IPv6 packets without it.
    pub(super) fn answered(&self, packet: &[u8]) -> Option<u32> {
        let message = match self.family {
            Family::V4 => {
                let header = usize::from(packet.first()? & 0x0f) * 4;
                let message = packet.get(header..)?;
                // The kernel does not verify the checksum for raw sockets.
                (checksum(message) == 0).then_some(message)?
            }
            // The kernel has verified the checksum.
            Family::V6 => packet,
        };
        let ([kind, code, ..], payload) = message.split_first_chunk::<8>()?;
        let (token, payload) = payload.split_first_chunk()?;
        let (number, _) = payload.split_first_chunk()?;
        let is_ours = (*kind, *code) == (self.family.answer(), 0) && *token == self.token;
        is_ours.then(|| u32::from_be_bytes(*number))
    }

    /// The number of the request that an ICMP error quotes; `None` if it is not a
    /// request of this socket. The quote may be only the header. `last` is the
    /// number of the last request.
    pub(super) fn quoted(&self, quote: &[u8], last: u32) -> Option<u32> {
        let ([kind, _, _, _, identifier @ .., high, low], _) = quote.split_first_chunk::<8>()?;
        if *kind != self.family.request() || *identifier != self.identifier {
            return None;
        }
        let sequence = u16::from_be_bytes([*high, *low]);
        let [_, _, last_high, last_low] = last.to_be_bytes();
        let back = u16::from_be_bytes([last_high, last_low]).wrapping_sub(sequence);
        last.checked_sub(back.into())
    }
}

/// The checksum of RFC 1071; it is 0 over a message that contains its checksum.
fn checksum(message: &[u8]) -> u16 {
    let words = message.chunks(2).map(|ping| match *ping {
        [high, low] => u16::from_be_bytes([high, low]),
        [high] => u16::from_be_bytes([high, 0]),
        _ => 0,
    });
    !words.fold(0, |sum: u16, word| {
        let (sum, carry) = sum.overflowing_add(word);
        sum + u16::from(carry)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An IPv4 header without options; only its length matters.
    const IP_HEADER: [u8; 20] = [
        0x45, 0, 0, 84, 0, 0, 0, 0, 64, 1, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1,
    ];

    /// The answer of the other side to a request.
    fn answer(family: Family, mut message: [u8; LENGTH]) -> Vec<u8> {
        message[0] = family.answer();
        message[2..4].copy_from_slice(&[0; 2]);
        let sum = checksum(&message).to_be_bytes();
        message[2..4].copy_from_slice(&sum);
        match family {
            Family::V4 => [&IP_HEADER[..], &message].concat(),
            Family::V6 => message.to_vec(),
        }
    }

    #[test]
    fn the_checksum_matches_the_example_of_the_rfc() {
        // The numbers of RFC 1071, section 3.
        let message = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(checksum(&message), !0xddf2);
        assert_eq!(checksum(&[0x01]), !0x0100);
        assert_eq!(checksum(&Echo::new(Family::V4, 1, 1).request(1)), 0);
    }

    #[test]
    fn an_answer_contains_the_number_of_its_request() {
        for family in [Family::V4, Family::V6] {
            let echo = Echo::new(family, 4711, 3);
            for number in [1, 65_536, u32::MAX] {
                let packet = answer(family, echo.request(number));
                assert_eq!(echo.answered(&packet), Some(number), "{family:?}");
            }
        }
    }

    #[test]
    fn other_packets_are_not_answers_to_this_socket() {
        for family in [Family::V4, Family::V6] {
            let echo = Echo::new(family, 4711, 3);
            let message = echo.request(7);
            let whole = answer(family, message);
            for other in [Echo::new(family, 4711, 4), Echo::new(family, 4710, 3)] {
                assert_eq!(other.answered(&whole), None);
            }
            let request = match family {
                Family::V4 => [&IP_HEADER[..], &message].concat(),
                Family::V6 => message.to_vec(),
            };
            assert_eq!(echo.answered(&request), None, "the request itself");
            let needed = whole.len() - LENGTH + 20;
            for length in 0..needed {
                assert_eq!(echo.answered(&whole[..length]), None, "{length} bytes");
            }
        }
    }

    #[test]
    fn a_damaged_answer_is_not_an_answer() {
        let echo = Echo::new(Family::V4, 4711, 3);
        let mut packet = answer(Family::V4, echo.request(7));
        *packet.last_mut().unwrap() ^= 1;
        assert_eq!(echo.answered(&packet), None);
    }

    #[test]
    fn a_quote_stands_for_the_last_request_with_its_16_bits() {
        let echo = Echo::new(Family::V6, 4711, 3);
        let header = |number: u32| echo.request(number)[..8].to_vec();
        assert_eq!(echo.quoted(&header(7), 9), Some(7));
        assert_eq!(echo.quoted(&header(65_535), 65_540), Some(65_535));
        assert_eq!(echo.quoted(&header(131_072), 131_075), Some(131_072));
        assert_eq!(echo.quoted(&header(9), 7), None, "not sent yet");
        assert_eq!(echo.quoted(&header(7)[..7], 9), None);
        assert_eq!(Echo::new(Family::V6, 4711, 4).quoted(&header(7), 9), None);
        assert_eq!(Echo::new(Family::V4, 4711, 3).quoted(&header(7), 9), None);
    }
}
