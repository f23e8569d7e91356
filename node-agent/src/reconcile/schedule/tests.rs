use super::*;

const CHANGES: Due = Due {
    poll: false,
    resync: &[],
};
const POLL: Due = Due {
    poll: true,
    resync: &[],
};
const FULL: Due = Due {
    poll: true,
    resync: &ResyncTarget::ALL,
};

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

#[test]
fn it_begins_with_a_full_resync_and_then_polls_every_second() {
    let start = Instant::now();
    let mut schedule = Schedule::new(start);
    assert_eq!(schedule.due(start, Changes::None), Some(FULL));
    schedule.ended(start, ms(1), FULL, false);
    assert_eq!(schedule.due(start + ms(999), Changes::None), None);
    assert_eq!(schedule.wait(start, Changes::None), ms(1000));
    assert_eq!(schedule.due(start + ms(1000), Changes::None), Some(POLL));
}

#[test]
fn each_target_is_read_again_within_half_a_minute_and_never_two_at_once() {
    let start = Instant::now();
    let mut schedule = Schedule::new(start);
    let mut last = [start; ResyncTarget::ALL.len()];
    schedule.ended(start, ms(20), FULL, false);
    let (mut now, mut reconciles) = (start, 0);
    while now < start + ms(120_000) {
        now += schedule.wait(now, Changes::None);
        let due = schedule.due(now, Changes::None).unwrap();
        assert!(due.poll && due.resync.len() <= 1, "{due:?}");
        for (target, last) in ResyncTarget::ALL.into_iter().zip(&mut last) {
            if due.has(target) {
                *last = now;
            }
            assert!(now - *last < ms(30_000), "{target:?}");
        }
        now += ms(6);
        reconciles += 1;
        schedule.ended(now, ms(6), due, false);
    }
    assert!(reconciles <= 121, "{reconciles} in two minutes");
}

#[test]
fn a_target_that_fails_is_followed_by_a_full_resync() {
    let start = Instant::now();
    let mut schedule = Schedule::new(start);
    schedule.ended(start, ms(1), FULL, false);
    let then = start + ms(3000);
    let due = schedule.due(then, Changes::None).unwrap();
    assert_eq!(due.resync, &ResyncTarget::ALL[..1]);
    schedule.ended(then, ms(1), due, true);
    assert_eq!(schedule.due(then + ms(249), Changes::None), None);
    assert_eq!(schedule.due(then + ms(250), Changes::None), Some(FULL));
}

#[test]
fn a_poll_can_be_brought_forward_and_not_put_off() {
    let start = Instant::now();
    let mut schedule = Schedule::new(start);
    schedule.ended(start, ms(1), FULL, false);
    schedule.poll_by(start + ms(5000));
    assert_eq!(schedule.wait(start, Changes::None), ms(1000));
    schedule.poll_by(start + ms(400));
    assert_eq!(schedule.wait(start, Changes::None), ms(400));
}

#[test]
fn a_change_that_comes_alone_is_reconciled_at_once() {
    let start = Instant::now();
    let mut schedule = Schedule::new(start);
    schedule.ended(start, ms(5), FULL, false);
    assert_eq!(schedule.due(start, Changes::Wanted), Some(CHANGES));
    // A reconcile for changes does not put off the poll.
    schedule.ended(start + ms(900), ms(1), CHANGES, false);
    assert!(schedule.due(start + ms(1000), Changes::None).is_some());
}

#[test]
fn what_the_kernel_tells_waits_for_more_of_it_and_once() {
    let start = Instant::now();
    let mut schedule = Schedule::new(start);
    schedule.ended(start, ms(5), FULL, false);
    schedule.changed(start, Changes::Notified);
    schedule.changed(start + ms(2), Changes::Notified);
    assert_eq!(schedule.due(start + ms(2), Changes::Notified), None);
    assert_eq!(schedule.wait(start + ms(2), Changes::Notified), ms(1));
    assert_eq!(schedule.due(start + ms(2), Changes::Wanted), Some(CHANGES));
    let due = schedule.due(start + ms(3), Changes::Notified);
    assert_eq!(due, Some(CHANGES));
    schedule.ended(start + ms(4), ms(1), CHANGES, false);
    schedule.changed(start + ms(5), Changes::Notified);
    assert_eq!(schedule.due(start + ms(7), Changes::Notified), None);
    assert!(schedule.due(start + ms(8), Changes::Notified).is_some());
}

#[test]
fn a_long_reconcile_puts_changes_off_for_the_maximum_pause_and_no_longer() {
    let start = Instant::now();
    let mut schedule = Schedule::new(start);
    schedule.ended(start, Duration::ZERO, FULL, false);
    schedule.ended(start, ms(400), CHANGES, false);
    assert_eq!(schedule.wait(start, Changes::Wanted), ms(25));
    assert_eq!(schedule.due(start + ms(24), Changes::Wanted), None);
    assert_eq!(schedule.due(start + ms(25), Changes::Wanted), Some(CHANGES));
    // The pause that was pending has passed meanwhile.
    schedule.ended(start + ms(500), ms(1), CHANGES, false);
    assert_eq!(
        schedule.due(start + ms(500), Changes::Wanted),
        Some(CHANGES)
    );
}

#[test]
fn polls_and_resyncs_put_no_changes_off() {
    let start = Instant::now();
    let mut schedule = Schedule::new(start);
    schedule.ended(start, ms(400), FULL, false);
    assert_eq!(schedule.due(start, Changes::Wanted), Some(CHANGES));
}

#[test]
fn in_a_storm_of_changes_reconciles_take_half_of_the_time() {
    let start = Instant::now();
    let mut schedule = Schedule::new(start);
    schedule.ended(start, Duration::ZERO, FULL, false);
    let (mut now, mut reconciles) = (start, 0);
    while now < start + ms(900) {
        now += schedule.wait(now, Changes::Wanted);
        assert!(schedule.due(now, Changes::Wanted).is_some());
        now += ms(2);
        reconciles += 1;
        schedule.ended(now, ms(2), CHANGES, false);
    }
    // 4 ms each, and the allowance at the beginning.
    assert!((225..=231).contains(&reconciles), "{reconciles}");
}

#[test]
fn after_a_failure_comes_a_full_resync_later_each_time() {
    let start = Instant::now();
    let mut schedule = Schedule::new(start);
    schedule.ended(start, ms(1), FULL, true);
    assert_eq!(
        schedule.due(start + ms(249), Changes::Wanted),
        None,
        "the change may be what fails"
    );
    assert!(
        schedule
            .due(start + ms(250), Changes::None)
            .is_some_and(Due::is_full)
    );
    schedule.ended(start + ms(250), ms(1), FULL, true);
    assert!(
        !schedule
            .due(start + ms(700), Changes::Wanted)
            .is_some_and(Due::is_full)
    );
    assert!(
        schedule
            .due(start + ms(750), Changes::None)
            .is_some_and(Due::is_full)
    );
    for _ in 0..40 {
        schedule.ended(start, ms(1), FULL, true);
    }
    assert!(
        schedule
            .due(start + ms(15_000), Changes::None)
            .is_some_and(Due::is_full)
    );
    schedule.ended(start, ms(1), FULL, false);
    assert!(
        !schedule
            .due(start + ms(15_000), Changes::None)
            .is_some_and(Due::is_full)
    );
}

#[test]
fn what_needs_no_reconcile_waits_for_pauses_and_not_for_failures() {
    let start = Instant::now();
    let mut schedule = Schedule::new(start);
    schedule.ended(start, ms(1), FULL, false);
    assert!(!schedule.backs_off(start), "a reconcile may begin at once");
    schedule.ended(start, ms(1), FULL, true);
    assert_eq!(schedule.due(start, Changes::Wanted), None);
    assert!(schedule.backs_off(start));
    // It takes long itself.
    schedule.followed(start + ms(100), ms(100));
    assert!(!schedule.backs_off(start + ms(124)));
    assert_eq!(schedule.pause(start + ms(100)), ms(25));
    assert!(schedule.backs_off(start + ms(125)));
    assert!(!schedule.backs_off(start + ms(250)), "the reconcile is due");
    assert_eq!(schedule.due(start + ms(250), Changes::Wanted), Some(FULL));
}

#[test]
fn polls_that_fail_for_ever_do_not_put_the_full_resync_off() {
    let start = Instant::now();
    let mut schedule = Schedule::new(start);
    let mut full = 0;
    for second in 0..300 {
        let now = start + ms(second * 1000);
        if let Some(due) = schedule.due(now, Changes::None) {
            full += u32::from(due.is_full());
            schedule.ended(now, ms(1), due, true);
        }
    }
    assert!(full >= 300 / 16, "{full}");
}

/// Else a kernel that tells of changes all the time would have them reconciled all the time.
#[test]
fn what_the_kernel_tells_waits_for_pauses_and_failures_too() {
    let start = Instant::now();
    let mut schedule = Schedule::new(start);
    schedule.ended(start, Duration::ZERO, FULL, false);
    schedule.ended(start, ms(400), CHANGES, false);
    schedule.changed(start, Changes::Notified);
    assert_eq!(schedule.due(start + ms(24), Changes::Notified), None);
    let due = schedule.due(start + ms(25), Changes::Notified);
    assert_eq!(due, Some(CHANGES));
    schedule.ended(start + ms(500), ms(1), CHANGES, true);
    schedule.changed(start + ms(500), Changes::Notified);
    assert_eq!(schedule.due(start + ms(749), Changes::Notified), None);
}

#[test]
fn when_what_failed_works_again_all_is_read_at_once_and_the_next_failure_is_a_first_one() {
    let start = Instant::now();
    let mut schedule = Schedule::new(start);
    for _ in 0..10 {
        schedule.ended(start, ms(1), FULL, true);
    }
    assert_eq!(schedule.due(start + ms(1000), Changes::None), Some(POLL));
    schedule.ended(start + ms(1000), ms(1), POLL, false);
    assert_eq!(schedule.due(start + ms(1000), Changes::None), Some(FULL));
    schedule.ended(start + ms(1000), ms(1), FULL, true);
    assert_eq!(schedule.due(start + ms(1249), Changes::None), None);
    assert_eq!(schedule.due(start + ms(1250), Changes::None), Some(FULL));
}
