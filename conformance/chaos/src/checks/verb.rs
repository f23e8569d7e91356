//! The verb CHECK finds each attached pod as its ADD left it.

use tweed_lab::LabError;

use crate::world::{Call, World, panicked, run_on, unclean};

/// The pods for which CHECK fails, and why.
///
/// # Errors
/// There is no node of this number.
pub fn problems(world: &mut World, index: u8) -> Result<Vec<String>, LabError> {
    let mut calls = Vec::new();
    for pod in 0..world.pods.len() {
        if world.pods[pod].node == index {
            match world.call("CHECK", pod) {
                Ok(call) => calls.push(call),
                Err(error) => return Ok(vec![error]),
            }
        }
    }
    let node = &world.node(index)?.node;
    let check = |call: &Call| match run_on(node, call) {
        Ok(output) if output.code == Some(0) => (None, None),
        Ok(output) => {
            let text = format!("CHECK of {}: {}", call.container, output.stdout.trim());
            (Some(text), unclean(call, &output))
        }
        Err(error) => (Some(error.chain()), None),
    };
    let ended: Vec<(Option<String>, Option<String>)> = std::thread::scope(|scope| {
        let start = |call| scope.spawn(move || check(call));
        let threads: Vec<_> = calls.iter().map(start).collect();
        let joined = threads.into_iter().zip(&calls).map(|(thread, call)| {
            let ended = thread.join();
            ended.unwrap_or_else(|_| (None, Some(panicked([call]))))
        });
        joined.collect()
    });
    let (failed, unclean): (Vec<_>, Vec<_>) = ended.into_iter().unzip();
    world.findings.extend(unclean.into_iter().flatten());
    Ok(failed.into_iter().flatten().collect())
}
