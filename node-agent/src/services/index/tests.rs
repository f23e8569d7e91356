use super::*;
use crate::config;

/// Kubernetes has them since 1.33, and nothing else says what is missing without them.
#[test]
fn without_service_cidrs_a_note_says_what_is_not_dropped() {
    let config = config::of_line("--node-name a --services on");
    let mut index = ServiceIndex::new(config.services.unwrap());
    let list = [Event::<ServiceCidr>::Init, Event::InitDone];
    for event in list.clone() {
        index.apply(event);
    }
    let none: [String; 0] = [];
    assert_eq!(index.absent().collect::<Vec<_>>(), none);
    index.take_changed();
    index.apply(Event::<ServiceCidr>::Absent(
        "the API server has none".to_owned(),
    ));
    assert!(index.has_changed(), "the board is to show it");
    let note = "the API server has none: there are no ServiceCIDRs, so packets to addresses \
                that no Service has are not dropped";
    assert_eq!(index.absent().collect::<Vec<_>>(), [note]);
    for event in list {
        index.apply(event);
    }
    assert_eq!(index.absent().collect::<Vec<_>>(), none);
}
