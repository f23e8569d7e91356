//! Everything that is done to a cluster: a table of small actions by area.

mod calls;
mod files;
mod foreign;
mod lines;
mod node_file;
mod nodes;
mod owned;
mod processes;
mod underlay;

use tweed_lab::LabError;

use crate::burst::Action;
use crate::world::{Target, World};

/// A kind of action.
#[derive(Debug)]
pub struct Kind {
    /// What a reader of the log sees.
    pub name: &'static str,
    /// How often it is chosen, beside others.
    pub weight: usize,
    /// What it does.
    pub run: Run,
}

/// What an action does.
#[derive(Debug)]
pub enum Run {
    /// Lines for a node, with the placeholders of [`lines`]; tweed undoes their effect.
    Lines(&'static [&'static str]),
    /// Lines that break a pod's link for good: the runtime attaches the pod again.
    Pod(&'static [&'static str]),
    /// Lines that somebody has to undo, and the lines that do.
    Fault(&'static [&'static str], &'static [&'static str]),
    /// Anything else.
    Code(fn(&mut World, Target) -> Result<(), LabError>),
}

/// All kinds; an [`Action`] names one by its index.
pub fn kinds() -> Vec<&'static Kind> {
    [
        owned::KINDS,
        underlay::KINDS,
        processes::KINDS,
        calls::KINDS,
        nodes::KINDS,
        node_file::KINDS,
        files::KINDS,
        foreign::KINDS,
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The weights of all kinds, for [`burst`](crate::burst::burst).
pub fn weights() -> Vec<usize> {
    kinds().iter().map(|kind| kind.weight).collect()
}

/// Does an action and waits as long as it says. Returns what was done, in words.
///
/// # Errors
/// What the system refuses although it never does.
pub fn perform(world: &mut World, action: &Action) -> Result<String, LabError> {
    let kinds = kinds();
    let Some(kind) = kinds.get(action.kind) else {
        return Ok("nothing".to_owned());
    };
    let target = world.target(action.choices);
    let pod = target.pod.map(|pod| world.pods[pod].name.clone());
    let pod = pod.unwrap_or("no pod".to_owned());
    let done = format!("{} on node{} ({pod})", kind.name, target.node);
    match kind.run {
        Run::Lines(words) => {
            let lines = lines::filled(world, target, words)?;
            world.in_node(target.node, &lines);
        }
        Run::Pod(words) => {
            if let Some(pod) = target.pod {
                let lines = lines::filled(world, target, words)?;
                world.in_node(target.node, &lines);
                world.pods[pod].attached = None;
            }
        }
        Run::Fault(words, undo) => {
            let undo = lines::filled(world, target, undo)?;
            let lines = lines::filled(world, target, words)?;
            if !lines.is_empty() {
                world.undo_lines(target.node, undo);
                world.in_node(target.node, &lines);
            }
        }
        Run::Code(code) => code(world, target)?,
    }
    std::thread::sleep(action.pause);
    let notes = world.take_notes().join(", ");
    Ok(format!("{done} {notes}"))
}
