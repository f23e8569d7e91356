//! Link-layer addresses.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::name::InvalidName;

/// A link-layer address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// Six bytes of a digest as a unicast, locally administered address.
    pub fn local(bytes: [u8; 6]) -> Self {
        let mut bytes = bytes;
        bytes[0] = (bytes[0] | 0x02) & !0x01;
        Self(bytes)
    }

    /// Parses an address that a link can have: the kernel gives it neither a multicast
    /// address nor zero.
    ///
    /// # Errors
    /// For every other text.
    pub fn parse_unicast(value: &str) -> Result<Self, InvalidName> {
        let mac: Self = value.parse()?;
        if mac.0[0] & 0x01 != 0 || mac.0 == [0; 6] {
            return Err(InvalidName {
                what: "MAC address",
                value: value.to_owned(),
                why: "must be a unicast address, and not zero",
            });
        }
        Ok(mac)
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl std::str::FromStr for Mac {
    type Err = InvalidName;
    fn from_str(value: &str) -> Result<Self, InvalidName> {
        let invalid = || InvalidName {
            what: "MAC address",
            value: value.to_owned(),
            why: "is not six pairs of hex digits with ':' between",
        };
        let mut bytes = [0; 6];
        let mut parts = value.split(':');
        for byte in &mut bytes {
            // `from_str_radix` would accept a sign.
            let is_pair = |p: &&str| p.len() == 2 && p.bytes().all(|b| b.is_ascii_hexdigit());
            let part = parts.next().filter(is_pair).ok_or_else(invalid)?;
            *byte = u8::from_str_radix(part, 16).map_err(|_| invalid())?;
        }
        match parts.next() {
            None => Ok(Self(bytes)),
            Some(_) => Err(invalid()),
        }
    }
}

impl TryFrom<String> for Mac {
    type Error = InvalidName;
    fn try_from(value: String) -> Result<Self, InvalidName> {
        value.parse()
    }
}

impl From<Mac> for String {
    fn from(mac: Mac) -> Self {
        mac.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mac_reads_what_it_prints() {
        let mac = Mac([0x02, 0, 0xab, 0xff, 0x10, 0x09]);
        assert_eq!(mac.to_string().parse::<Mac>(), Ok(mac));
        assert!("02:00:ab:ff:10".parse::<Mac>().is_err());
        assert!("02:00:ab:ff:10:9".parse::<Mac>().is_err());
        assert!("+2:00:ab:ff:10:09".parse::<Mac>().is_err());
        assert!("02:00:ab:ff:10:09:00".parse::<Mac>().is_err());
    }

    #[test]
    fn a_link_has_neither_a_multicast_address_nor_zero() {
        for good in ["02:00:ab:ff:10:09", "00:00:00:00:00:01"] {
            assert_eq!(Mac::parse_unicast(good), good.parse(), "{good}");
        }
        for bad in [
            "01:00:5e:00:00:01",
            "ff:ff:ff:ff:ff:ff",
            "00:00:00:00:00:00",
        ] {
            let why = Mac::parse_unicast(bad).unwrap_err().to_string();
            assert!(why.contains(bad) && why.contains("unicast"), "{why}");
        }
        assert!(Mac::parse_unicast("no").is_err());
    }
}
