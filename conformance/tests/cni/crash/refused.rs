//! A system call of a verb fails: the verb succeeds all the same, and wholly, or it says
//! so in an error document. An ADD that fails leaves nothing; and the DEL that the runtime
//! sends leaves nothing in any case.

use tweed_lab::{AddResult, PluginOutput, Strace, SystemCall};

use super::points::{NEVER_REFUSED, chosen, is_every_error_wanted};
use super::stage::{Stage, succeeded};
use crate::fixture::assert_refused;

const ERRORS: [&str; 5] = ["ENOMEM", "EBUSY", "EINTR", "ENOSPC", "EIO"];

/// Each call with one of the errors, or with all of them.
fn faults(calls: Vec<SystemCall>) -> Vec<(SystemCall, &'static str)> {
    let offset = std::process::id() as usize;
    let with_errors = |(position, call): (usize, SystemCall)| {
        let count = if is_every_error_wanted() {
            ERRORS.len()
        } else {
            1
        };
        let errors = ERRORS
            .iter()
            .cycle()
            .skip((position + offset) % ERRORS.len());
        errors.take(count).map(move |error| (call.clone(), *error))
    };
    calls
        .into_iter()
        .enumerate()
        .flat_map(with_errors)
        .collect()
}

/// The error cannot be said where it is the writing of the document that fails.
fn says_why(output: &PluginOutput, strace: &Strace, when: &str) {
    let injected = strace.injected().unwrap().unwrap_or_default();
    if injected.starts_with("write(1,") {
        assert_eq!(output.code, Some(1), "{when}: {output:?}");
        return;
    }
    assert_eq!(output.code, Some(1), "{when}: {injected}: {output:?}");
    let document = assert_refused(output);
    assert_ne!(document["code"], 999, "{when}: a panic: {document}");
}

fn refused_at_each_call(program: &'static str, verb: &str) {
    let stage = Stage::new(program);
    let mut made = stage.system_calls(verb);
    made.retain(|name, _| !NEVER_REFUSED.contains(&name.as_str()));
    let before = stage.baseline();
    let (mut refused, mut injected) = (0, 0);
    for (point, error) in faults(chosen(&made)) {
        let when = format!("{program} {verb} with {error} from {point}");
        let added = (verb != "ADD").then(|| stage.add(&stage.victim, &when));
        let strace = stage.strace().fail(&point, error);
        let output = stage.run_under(&strace, verb, added.as_ref());
        injected += u32::from(strace.injected().unwrap().is_some());
        if output.code == Some(0) {
            if verb == "ADD" {
                let added = AddResult::parse(&output.stdout).unwrap();
                succeeded(&stage.run(&stage.call("CHECK", Some(&added))), &when);
            } else if verb != "CHECK" {
                before.assert_same(|| stage.objects(), &when);
            }
        } else {
            refused += 1;
            says_why(&output, &strace, &when);
            if verb == "ADD" {
                before.assert_same(|| stage.objects(), &format!("{when}, before the DEL"));
            }
        }
        stage.del(&stage.victim, &when);
        before.assert_same(|| stage.objects(), &when);
    }
    assert!(injected > 0, "no call was made to fail");
    println!("{program} {verb}: {injected} calls failed, {refused} times the verb too");
}

for_each_verb!(refused_at_each_call);
