//! The whole protocol without a process: environment and stdin in, stdout and
//! exit code out.

use std::ffi::OsString;
use std::io;

use proptest::prelude::*;

use super::*;

/// Every verb succeeds and is recorded.
#[derive(Default)]
struct Good(Vec<&'static str>);

impl Plugin for Good {
    fn add(&mut self, _: &Request<'_>, target: &Target) -> Result<AddResult, CniError> {
        self.0.push("ADD");
        Ok(AddResult {
            interfaces: vec![crate::Interface {
                name: target.attachment.ifname.to_string(),
                mtu: Some(1450),
                ..Default::default()
            }],
            ..AddResult::default()
        })
    }
    fn del(&mut self, _: &Request<'_>, _: &Target) -> Result<(), CniError> {
        self.0.push("DEL");
        Ok(())
    }
    fn check(&mut self, _: &Request<'_>, _: &Target) -> Result<(), CniError> {
        self.0.push("CHECK");
        Ok(())
    }
    fn status(&mut self, _: &Request<'_>) -> Result<(), CniError> {
        self.0.push("STATUS");
        Ok(())
    }
    fn gc(&mut self, _: &Request<'_>) -> Result<(), CniError> {
        self.0.push("GC");
        Ok(())
    }
}

/// Panics in every verb.
struct Bad;

impl Plugin for Bad {
    fn add(&mut self, _: &Request<'_>, target: &Target) -> Result<AddResult, CniError> {
        panic!("no luck with {}", target.attachment)
    }
    fn del(&mut self, _: &Request<'_>, _: &Target) -> Result<(), CniError> {
        panic!("no luck")
    }
    fn check(&mut self, _: &Request<'_>, _: &Target) -> Result<(), CniError> {
        std::panic::panic_any(7)
    }
    fn status(&mut self, request: &Request<'_>) -> Result<(), CniError> {
        // The log stays borrowed: `run` must not need it again.
        std::mem::forget(request.log.borrow_mut());
        panic!("no luck")
    }
    fn gc(&mut self, _: &Request<'_>) -> Result<(), CniError> {
        panic!("no luck")
    }
}

const VERBS: [&str; 6] = ["ADD", "DEL", "CHECK", "STATUS", "GC", "VERSION"];

struct Answer {
    exit: u8,
    stdout: Vec<u8>,
}

impl Answer {
    fn document(&self) -> Value {
        serde_json::from_slice(&self.stdout)
            .unwrap_or_else(|e| panic!("{e}: {:?}", String::from_utf8_lossy(&self.stdout)))
    }
}

fn call(plugin: &mut dyn Plugin, verb: &str, stdin: &[u8]) -> Answer {
    let env = |name: &str| match name {
        "CNI_COMMAND" => Some(OsString::from(verb)),
        "CNI_CONTAINERID" => Some(OsString::from("c1")),
        "CNI_NETNS" => Some(OsString::from("/run/netns/c1")),
        "CNI_IFNAME" => Some(OsString::from("eth0")),
        _ => None,
    };
    call_in(&env, plugin, stdin)
}

fn call_in(env: &Environment<'_>, plugin: &mut dyn Plugin, mut stdin: &[u8]) -> Answer {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let exit = run(
        Invocation {
            env,
            stdin: &mut stdin,
            stdout: &mut stdout,
            stderr: &mut stderr,
        },
        plugin,
    );
    Answer { exit, stdout }
}

fn config(version: &str) -> Vec<u8> {
    json!({"cniVersion": version, "name": "tweed"})
        .to_string()
        .into_bytes()
}

#[test]
fn success_is_a_document_for_add_and_nothing_for_the_others() {
    for verb in ["ADD", "DEL", "CHECK", "STATUS", "GC"] {
        let mut plugin = Good::default();
        let answer = call(&mut plugin, verb, &config("1.1.0"));
        assert_eq!(answer.exit, 0, "{verb}");
        assert_eq!(plugin.0, [verb]);
        if verb == "ADD" {
            assert_eq!(answer.document()["cniVersion"], "1.1.0");
            assert_eq!(answer.document()["interfaces"][0]["mtu"], 1450);
        } else {
            assert_eq!(answer.stdout, b"", "{verb}");
        }
    }
}

#[test]
fn add_answers_in_the_version_it_was_asked_in() {
    let answer = call(&mut Good::default(), "ADD", &config("1.0.0"));
    assert_eq!(answer.document()["cniVersion"], "1.0.0");
    assert_eq!(answer.document()["interfaces"][0].get("mtu"), None);
}

#[test]
fn version_needs_no_config() {
    for (stdin, spoken) in [
        (config("0.4.0"), "0.4.0"),
        (config("9.9.9"), "1.1.0"),
        (vec![], "1.1.0"),
        (b"\xff{".to_vec(), "1.1.0"),
        (vec![b' '; config::LIMIT + 9], "1.1.0"),
    ] {
        let answer = call(&mut Good::default(), "VERSION", &stdin);
        assert_eq!(answer.exit, 0);
        assert_eq!(
            answer.document(),
            json!({
                "cniVersion": spoken,
                "supportedVersions": ["0.3.1", "0.4.0", "1.0.0", "1.1.0"],
            })
        );
    }
}

#[test]
fn a_verb_before_its_version_is_code_1() {
    for (verb, version) in [
        ("CHECK", "0.3.1"),
        ("STATUS", "0.3.1"),
        ("STATUS", "0.4.0"),
        ("STATUS", "1.0.0"),
        ("GC", "1.0.0"),
    ] {
        let mut plugin = Good::default();
        let answer = call(&mut plugin, verb, &config(version));
        assert_eq!(answer.exit, 1);
        assert_eq!(answer.document()["code"], 1);
        assert_eq!(answer.document()["cniVersion"], version);
        assert!(plugin.0.is_empty(), "{verb} {version}");
    }
    for verb in ["ADD", "DEL"] {
        let answer = call(&mut Good::default(), verb, &config("0.3.1"));
        assert_eq!(answer.exit, 0, "{verb}");
    }
}

#[test]
fn a_panic_is_an_error_document_with_its_message() {
    for verb in ["ADD", "DEL", "CHECK", "STATUS", "GC"] {
        let answer = call(&mut Bad, verb, &config("1.1.0"));
        assert_eq!(answer.exit, 1);
        assert_eq!(answer.document()["code"], 999, "{verb}");
    }
    let answer = call(&mut Bad, "ADD", &config("1.1.0"));
    assert_eq!(answer.document()["details"], "no luck with tweed/c1/eth0");
}

#[test]
fn without_a_command_it_says_what_it_is() {
    let answer = call_in(&|_: &str| None, &mut Good::default(), b"");
    assert_eq!((answer.exit, &answer.document()["code"]), (1, &json!(4)));
    assert!(answer.document()["msg"].to_string().contains("CNI_COMMAND"));
}

#[test]
fn too_long_a_config_is_code_6_and_is_not_read_to_its_end() {
    let mut stdin = io::repeat(b' ').take(u64::MAX);
    let mut stdout = Vec::new();
    let env = |name: &str| (name == "CNI_COMMAND").then(|| OsString::from("ADD"));
    let exit = run(
        Invocation {
            env: &env,
            stdin: &mut stdin,
            stdout: &mut stdout,
            stderr: &mut io::sink(),
        },
        &mut Good::default(),
    );
    let document: Value = serde_json::from_slice(&stdout).unwrap();
    assert_eq!((exit, &document["code"]), (1, &json!(6)));
    assert_eq!(stdin.limit(), u64::MAX - config::LIMIT as u64 - 1);
}

/// A stdin or stdout that fails.
struct Broken;

impl Read for Broken {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::Error::other("broken"))
    }
}

impl Write for Broken {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::Error::other("broken"))
    }
    fn flush(&mut self) -> io::Result<()> {
        Err(io::Error::other("broken"))
    }
}

#[test]
fn a_broken_stdin_is_code_5_and_a_broken_stdout_a_failure() {
    let env = |name: &str| (name == "CNI_COMMAND").then(|| OsString::from("GC"));
    let mut stdout = Vec::new();
    let exit = run(
        Invocation {
            env: &env,
            stdin: &mut Broken,
            stdout: &mut stdout,
            stderr: &mut io::sink(),
        },
        &mut Good::default(),
    );
    let document: Value = serde_json::from_slice(&stdout).unwrap();
    assert_eq!((exit, &document["code"]), (1, &json!(5)));

    let mut stderr = Vec::new();
    let env = |_: &str| Some(OsString::from("VERSION"));
    let exit = run(
        Invocation {
            env: &env,
            stdin: &mut io::empty(),
            stdout: &mut Broken,
            stderr: &mut stderr,
        },
        &mut Good::default(),
    );
    assert_eq!(exit, 1);
    assert!(String::from_utf8(stderr).unwrap().contains("stdout"));
}

#[test]
fn an_add_whose_result_cannot_be_written_is_undone() {
    let env = |name: &str| match name {
        "CNI_COMMAND" => Some(OsString::from("ADD")),
        "CNI_CONTAINERID" => Some(OsString::from("c1")),
        "CNI_NETNS" => Some(OsString::from("/run/netns/c1")),
        "CNI_IFNAME" => Some(OsString::from("eth0")),
        _ => None,
    };
    let (mut plugin, stdin, mut stderr) = (Good::default(), config("1.1.0"), Vec::new());
    let invocation = Invocation {
        env: &env,
        stdin: &mut stdin.as_slice(),
        stdout: &mut Broken,
        stderr: &mut stderr,
    };
    assert_eq!(run(invocation, &mut plugin), 1);
    assert_eq!(plugin.0, ["ADD", "DEL"]);
    let log = String::from_utf8(stderr).unwrap();
    assert!(log.contains("undone") && log.contains("stdout"), "{log}");
}

/// JSON that is nearly a config.
fn near_config() -> impl Strategy<Value = Vec<u8>> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z0-9./-]{0,8}".prop_map(Value::from),
        prop::sample::select(vec!["1.1.0", "0.3.1", "0.1.0", "tweed"]).prop_map(Value::from),
    ];
    let value = leaf.prop_recursive(3, 20, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{1,6}", inner, 0..4)
                .prop_map(|map| map.into_iter().collect()),
        ]
    });
    let key = prop::sample::select(vec![
        "cniVersion",
        "name",
        "type",
        "ipam",
        "prevResult",
        "runtimeConfig",
        "args",
        "cni.dev/valid-attachments",
    ]);
    prop::collection::btree_map(key, value, 0..8)
        .prop_map(|keys| json!(keys).to_string().into_bytes())
}

proptest! {
    #[test]
    fn whatever_comes_in_one_document_goes_out(
        verb in prop::sample::select(VERBS.to_vec()),
        stdin in prop_oneof![prop::collection::vec(any::<u8>(), 0..200), near_config()],
        cut in 0usize..200,
    ) {
        let stdin = &stdin[..stdin.len().saturating_sub(cut % 7)];
        let answer = call(&mut Good::default(), verb, stdin);
        if answer.stdout.is_empty() {
            prop_assert_eq!(answer.exit, 0);
            prop_assert!(verb != "ADD" && verb != "VERSION");
        } else {
            let document = answer.document();
            prop_assert!(document["cniVersion"].is_string());
            prop_assert_eq!(answer.exit != 0, document.get("code").is_some());
        }
    }

    #[test]
    fn whatever_the_environment_says_one_document_goes_out(
        values in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 6),
        verb in prop::option::of(prop::sample::select(VERBS.to_vec())),
    ) {
        use std::os::unix::ffi::OsStringExt;
        let names = ["CNI_COMMAND", "CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_ARGS", "CNI_PATH"];
        let env = |name: &str| match (name, verb) {
            ("CNI_COMMAND", Some(verb)) => Some(OsString::from(verb)),
            _ => names.iter().position(|n| *n == name).map(|i| OsString::from_vec(values[i].clone())),
        };
        let answer = call_in(&env, &mut Good::default(), &config("1.1.0"));
        if !answer.stdout.is_empty() {
            prop_assert!(answer.document().is_object());
        }
    }
}
