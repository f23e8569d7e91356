//! `pause`: the main container of the pod that cleans a node.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use crate::node::program;

#[test]
fn it_waits_and_ends_well_when_it_is_told() {
    let mut command = Command::new(program());
    let mut pause = command.arg("pause").stdout(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    let mut stdout = BufReader::new(pause.stdout.take().unwrap());
    stdout.read_line(&mut said).unwrap();
    assert!(said.contains("waiting for SIGTERM"), "{said}");
    assert_eq!(pause.try_wait().unwrap(), None);
    let pid = pause.id().to_string();
    assert!(Command::new("kill").arg(&pid).status().unwrap().success());
    assert!(pause.wait().unwrap().success());
}
