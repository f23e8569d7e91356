//! The MAC of a Node's VXLAN device: a frozen function. Every node computes the MAC of every other from its name, so nodes of
//! different versions must agree: the vectors in the tests are part of the contract.

use sha2::{Digest, Sha256};
use tweed_core::mac::Mac;

/// The first six bytes of SHA-256 of `tweed-vtep`, a zero byte and the Node's
/// name, with the locally administered bit set and the multicast bit cleared.
pub fn mac(node_name: &str) -> Mac {
    let mut hash = Sha256::new();
    hash.update("tweed-vtep");
    hash.update([0]);
    hash.update(node_name);
    let digest: [u8; 32] = hash.finalize().into();
    let [a, b, c, d, e, f, ..] = digest;
    Mac::local([a, b, c, d, e, f])
}

#[cfg(test)]
mod tests {
    use super::mac;

    /// Frozen. `printf 'tweed-vtep\0node-1' | sha256sum` gives the same before
    /// the two bits are set: 4bf8e024728a…, ba0c18887fa4…, df52808575ee…,
    /// 54a6ea22fc4d….
    #[test]
    fn vtep_macs_are_frozen() {
        for (node, expected) in [
            ("node-1", "4a:f8:e0:24:72:8a"),
            ("node-2", "ba:0c:18:88:7f:a4"),
            ("", "de:52:80:85:75:ee"),
            ("worker-0.example.com", "56:a6:ea:22:fc:4d"),
        ] {
            assert_eq!(mac(node).to_string(), expected, "{node:?}");
        }
    }
}
