//! The pods and calls of a test that kills or hinders a program.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tweed_lab::{AddResult, PluginCall, PluginOutput, Pod, Strace};

use super::objects::Objects;
use crate::fixture::{Fixture, SUBNET_V6, with_prev_result};

/// A program with its pods: one is attached all the time, one is killed, and one comes
/// meanwhile.
pub struct Stage {
    pub fixture: Fixture,
    program: &'static str,
    pub kept: Pod,
    pub victim: Pod,
    pub other: Pod,
    kept_result: AddResult,
}

impl Stage {
    pub fn new(program: &'static str) -> Self {
        let fixture = Fixture::tweed();
        let [kept, victim, other] = ["kept", "victim", "other"].map(|name| fixture.pod(name));
        let add = call_over(&fixture, "ADD", &kept).run(&fixture.node, program);
        let kept_result = AddResult::parse(&succeeded(&add.unwrap(), "ADD").stdout).unwrap();
        Self {
            fixture,
            program,
            kept,
            victim,
            other,
            kept_result,
        }
    }

    pub fn run(&self, call: &PluginCall) -> PluginOutput {
        call.run(&self.fixture.node, self.program).unwrap()
    }

    /// Runs a call of the verb for the victim under `strace`.
    pub fn run_under(
        &self,
        strace: &Strace,
        verb: &str,
        added: Option<&AddResult>,
    ) -> PluginOutput {
        let call = self.call(verb, added);
        let output = call.run_under(strace, &self.fixture.node, self.program);
        output.unwrap()
    }

    pub fn add(&self, pod: &Pod, when: &str) -> AddResult {
        let output = self.run(&call_over(&self.fixture, "ADD", pod));
        AddResult::parse(&succeeded(&output, when).stdout).unwrap()
    }

    pub fn del(&self, pod: &Pod, when: &str) {
        succeeded(&self.run(&call_over(&self.fixture, "DEL", pod)), when);
    }

    /// A call that lists all pods but the victim as valid.
    pub fn gc(&self) -> PluginCall {
        let mut config = config(&self.fixture);
        config["cni.dev/valid-attachments"] = [&self.kept, &self.other]
            .map(|pod| json!({ "containerID": pod.container_id(), "ifname": "eth0" }))
            .into();
        PluginCall::new("GC").config(&config)
    }

    pub fn call(&self, verb: &str, added: Option<&AddResult>) -> PluginCall {
        match (verb, added) {
            ("GC", _) => self.gc(),
            ("CHECK", Some(added)) => call_over(&self.fixture, verb, &self.victim)
                .config(&with_prev_result(config(&self.fixture), added)),
            _ => call_over(&self.fixture, verb, &self.victim),
        }
    }

    /// What is there while only the kept pod is attached.
    pub fn baseline(&self) -> Objects {
        // Links on their way out hang between the lists of what `ip` reads.
        self.fixture.snapshot();
        self.objects()
    }

    pub fn objects(&self) -> Objects {
        Objects::of(&self.fixture, &[&self.kept, &self.victim, &self.other])
    }

    pub fn strace(&self) -> Strace {
        Strace::new(&self.fixture.node.folder().join("strace.txt"))
    }

    /// How many calls of each name a whole run of the verb makes.
    pub fn system_calls(&self, verb: &str) -> BTreeMap<String, usize> {
        let added = (verb != "ADD").then(|| self.add(&self.victim, "ADD"));
        let strace = self.strace();
        succeeded(&self.run_under(&strace, verb, added.as_ref()), verb);
        self.del(&self.victim, "DEL");
        // So that the folder has all the files that stay.
        self.add(&self.other, "ADD");
        self.del(&self.other, "DEL");
        let made = strace.calls().unwrap();
        assert!(made.len() > 10, "only {made:?}: is this a whole run?");
        made
    }

    /// No address is free while packets to it still go to a pod's link.
    pub fn assert_reserved_while_in_use(&self, when: &str) {
        let reserved = self.fixture.reserved();
        for family in ["-4", "-6"] {
            let list = format!("ip -j {family} route show proto 116");
            let routes = self.fixture.node.netns().json(&list).unwrap();
            for route in routes.as_array().into_iter().flatten() {
                let in_use = route["dst"].as_str().unwrap().parse().unwrap();
                assert!(reserved.contains(&in_use), "{when}: {route} is free");
            }
        }
    }

    /// No pod that is attached has an address that another has.
    pub fn assert_distinct(&self, added: &AddResult, when: &str) {
        let (new, kept) = (
            added.address().unwrap(),
            self.kept_result.address().unwrap(),
        );
        assert_ne!(new, kept, "{when}: the address is assigned twice");
    }
}

/// Both families in ranges so small that an address which is lost is missed.
fn config(fixture: &Fixture) -> Value {
    let sets = json!([[{ "subnet": "10.244.1.0/29" }], [{ "subnet": SUBNET_V6 }]]);
    fixture.config_over(&sets)
}

fn call_over(fixture: &Fixture, verb: &str, pod: &Pod) -> PluginCall {
    fixture.call(verb, pod).config(&config(fixture))
}

#[track_caller]
pub fn succeeded<'a>(output: &'a PluginOutput, when: &str) -> &'a PluginOutput {
    assert_eq!(output.code, Some(0), "{when}: {output:?}");
    output
}
