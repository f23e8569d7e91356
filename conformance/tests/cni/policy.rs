//! What network policies cost an ADD where there are none.

use tweed_lab::Strace;

use crate::fixture::Fixture;

/// How many system calls an ADD makes with these keys besides.
fn calls(fixture: &Fixture, name: &str, policy_wait: Option<u64>) -> usize {
    let mut config = fixture.config();
    if let Some(wait) = policy_wait {
        config["policyWait"] = wait.into();
    }
    let pod = fixture.pod(name);
    let strace = Strace::new(&fixture.node.run_dir().join(format!("calls-{name}")));
    let call = fixture.call("ADD", &pod).config(&config);
    let output = call.run_under(&strace, &fixture.node, "tweed").unwrap();
    assert_eq!(output.code, Some(0), "{output:?}");
    strace.calls().unwrap().values().sum()
}

#[test]
fn without_policies_an_add_costs_the_same_whatever_it_would_wait() {
    let fixture = Fixture::tweed();
    // The first one makes the folders of the store.
    calls(&fixture, "first", None);
    let without = calls(&fixture, "without", None);
    let with = calls(&fixture, "with", Some(2000));
    assert_eq!(with, without);
}
