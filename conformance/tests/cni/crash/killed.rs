//! A verb is killed at a system call. Meanwhile another pod is added; then DEL or GC
//! leaves nothing of the killed one, and it can be added again.

use super::points::chosen;
use super::stage::{Stage, succeeded};

fn killed_at_each_call(program: &'static str, verb: &str) {
    let stage = Stage::new(program);
    let made = stage.system_calls(verb);
    let points = chosen(&made);
    let before = stage.baseline();
    let mut killed = 0;
    for (round, point) in points.iter().enumerate() {
        let when = format!("{program} {verb} killed at {point}");
        let added = (verb != "ADD").then(|| stage.add(&stage.victim, &when));
        let strace = stage.strace().kill_at(point);
        let call = stage.call(verb, added.as_ref());
        let ended = call.run_under(&strace, &stage.fixture.node, program);
        let output = ended.unwrap();
        // A call fewer than in the first run, in which a folder was created.
        assert!(matches!(output.code, None | Some(0)), "{when}: {output:?}");
        killed += u32::from(output.code.is_none());
        stage.assert_reserved_while_in_use(&when);

        stage.assert_distinct(&stage.add(&stage.other, &when), &when);
        if round % 2 == 0 {
            stage.del(&stage.victim, &when);
        } else {
            succeeded(&stage.run(&stage.gc()), &when);
        }
        stage.del(&stage.other, &when);
        before.assert_same(|| stage.objects(), &when);

        let again = stage.add(&stage.victim, &when);
        stage.assert_distinct(&again, &when);
        succeeded(&stage.run(&stage.call("CHECK", Some(&again))), &when);
        stage.del(&stage.victim, &when);
    }
    before.assert_same(|| stage.objects(), "at the end");
    let (tried, all) = (points.len(), made.values().sum::<usize>());
    println!("{program} {verb}: {killed} killed, {tried} of {all} calls tried");
    assert!(killed > 0, "no call was killed");
}

for_each_verb!(killed_at_each_call);

#[test]
fn store_in_a_check() {
    killed_at_each_call("tweed-ipam", "CHECK");
}
