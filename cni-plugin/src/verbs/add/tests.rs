use tweed_core::attachment::{Attachment, ContainerId, IfName, NetworkName};

use super::*;

/// Somebody has removed the record of this ADD, which has failed, and another process adds
/// the same attachment by now.
#[test]
fn the_record_of_another_add_is_left_to_it() {
    let folder = tempfile::tempdir().unwrap();
    let network = NetworkName::new("tweed").unwrap();
    let store = Store::open(folder.path(), &network);
    let attachment = Attachment {
        network,
        container_id: ContainerId::new("one").unwrap(),
        ifname: IfName::new("eth0").unwrap(),
    };
    let own = Process::current().unwrap();
    let other = Process {
        start_time: own.start_time + 1,
        ..own
    };
    let seed_of = |by| Record::adding(attachment.clone(), Owner::Tweed, by);
    let mut locked = store.lock(LOCK_WAIT).unwrap();
    let _record = locked.track(&seed_of(other), Vec::new()).unwrap();
    drop(locked);

    free_own(&store, &seed_of(own)).unwrap();
    assert!(store.read(&attachment).unwrap().is_some());
    free_own(&store, &seed_of(other)).unwrap();
    assert!(store.read(&attachment).unwrap().is_none());
}
