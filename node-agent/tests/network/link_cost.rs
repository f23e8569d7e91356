//! What links that come and go cost the agent: prints figures and asserts none.
//!
//! `cargo test --release --workspace --test network link_cost -- --ignored --nocapture`

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::node::{Node, batch};

/// How often each is done.
const CYCLES: u32 = 15;
/// Time after a change in which the agent can take it up.
const SETTLE: Duration = Duration::from_millis(250);

/// What comes, and how it goes.
const CHANGES: [(&str, &str, &str); 3] = [
    (
        "a veth pair of a container of others, both ends here",
        "link add dk0 up type veth peer name dk1\nlink set dk1 up",
        "link del dk0",
    ),
    (
        "a link like that of a pod",
        "link add tw0123456789ab up group 116 type veth peer name x1",
        "link del tw0123456789ab",
    ),
    (
        "an address of lo that a Node could have",
        "addr add 198.51.100.77/32 dev lo",
        "addr del 198.51.100.77/32 dev lo",
    ),
];

/// The time that the agent's threads have had a processor: all but this one.
fn agents_time() -> Duration {
    let own = fs::read_link("/proc/thread-self").unwrap();
    let threads = fs::read_dir("/proc/self/task").unwrap().flatten();
    let others = threads.filter(|thread| Some(&*thread.file_name()) != own.file_name());
    // One that has ended meanwhile has no file.
    let times =
        others.filter_map(|thread| fs::read_to_string(thread.path().join("schedstat")).ok());
    times
        .map(|text| Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap()))
        .sum()
}

/// That time for what `work` does, and how long it took.
fn measured(work: impl FnOnce()) -> (Duration, Duration) {
    let (start, before) = (Instant::now(), agents_time());
    work();
    (agents_time() - before, start.elapsed())
}

#[test]
#[ignore = "measures: its figures mean something only in release mode, alone on the machine"]
fn links_that_come_and_go() {
    for nodes in [2, 5_000] {
        let node = Node::routed();
        node.list(1..=nodes);
        let agent = node.start(&[]);
        agent.ready();
        agent.passes();
        for (what, comes, goes) in CHANGES {
            let (idle, for_time) = measured(|| sleep(Duration::from_secs(5)));
            let (busy, took) = measured(|| {
                for _ in 0..CYCLES {
                    batch(comes);
                    sleep(SETTLE);
                    batch(goes);
                    sleep(SETTLE);
                }
            });
            let meanwhile = idle.mul_f64(took.as_secs_f64() / for_time.as_secs_f64());
            let each = busy.saturating_sub(meanwhile).as_secs_f64() * 1e3 / f64::from(CYCLES);
            println!("{nodes} Nodes: {what}: {each:.1} ms of a processor");
        }
    }
}
