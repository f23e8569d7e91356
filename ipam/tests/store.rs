//! What a user of the store sees.

#[cfg(test)]
mod common;

use common::*;

#[test]
fn an_address_comes_back_after_del_and_only_when_the_range_has_gone_round() {
    let lab = Lab::new();
    let store = lab.store();
    let ranges = subnet("10.1.0.0/29");
    // .1 is the gateway, .0 and .7 are network and broadcast: five are left.
    let mut given = Vec::new();
    for n in 0..10 {
        let record = add(&store, &format!("c{n}"), &ranges).unwrap();
        given.extend(addresses(&record));
        del(&store, &format!("c{n}"));
    }
    let once = ["10.1.0.2", "10.1.0.3", "10.1.0.4", "10.1.0.5", "10.1.0.6"];
    assert_eq!(given[..5], once);
    assert_eq!(given[5..], once);
}
