//! What a rule or an element of a verdict map decides about a packet.

use std::fmt;

use super::attributes::{Attributes, find, number, text};

/// `NFTA_DATA_VERDICT`.
const VERDICT: u16 = 2;
/// `NFTA_VERDICT_CODE`.
const CODE: u16 = 1;
/// `NFTA_VERDICT_CHAIN`.
const CHAIN: u16 = 2;

/// A verdict: codes of `enum nft_verdicts` and of `linux/netfilter.h`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// The packet passes this hook's chain.
    Accept,
    /// The packet is dropped.
    Drop,
    /// Back to the chain that this one was called from.
    Return,
    /// Through that chain, and back.
    Jump(String),
    /// Through that chain, and not back.
    Goto(String),
}

impl Verdict {
    /// Reads the data of an element or of an expression `immediate`; none if it is
    /// a value, or a verdict of another kind.
    pub fn read(data: &[u8]) -> Option<Self> {
        let verdict = find(data, VERDICT)?;
        let chain = || find(verdict, CHAIN).and_then(text).map(str::to_owned);
        match find(verdict, CODE).and_then(number)?.cast_signed() {
            0 => Some(Self::Drop),
            1 => Some(Self::Accept),
            -3 => chain().map(Self::Jump),
            -4 => chain().map(Self::Goto),
            -5 => Some(Self::Return),
            _ => None,
        }
    }

    /// As the data of an element.
    pub fn write(&self) -> Attributes {
        let (code, chain): (i32, _) = match self {
            Self::Drop => (0, None),
            Self::Accept => (1, None),
            Self::Jump(chain) => (-3, Some(chain)),
            Self::Goto(chain) => (-4, Some(chain)),
            Self::Return => (-5, None),
        };
        let mut verdict = Attributes::new().number(CODE, code.cast_unsigned());
        if let Some(chain) = chain {
            verdict = verdict.text(CHAIN, chain);
        }
        Attributes::new().nested(VERDICT, &verdict)
    }
}

impl fmt::Display for Verdict {
    /// As `nft` reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accept => write!(f, "accept"),
            Self::Drop => write!(f, "drop"),
            Self::Return => write!(f, "return"),
            Self::Jump(chain) => write!(f, "jump {chain}"),
            Self::Goto(chain) => write!(f, "goto {chain}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verdict_reads_back() {
        for verdict in [
            Verdict::Accept,
            Verdict::Drop,
            Verdict::Return,
            Verdict::Jump("a".to_owned()),
            Verdict::Goto("b".to_owned()),
        ] {
            let data = verdict.write();
            assert_eq!(Verdict::read(data.as_bytes()), Some(verdict));
        }
        assert_eq!(Verdict::read(&[]), None);
        let value = Attributes::new().number(1, 7);
        assert_eq!(Verdict::read(value.as_bytes()), None);
    }
}
