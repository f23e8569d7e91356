//! Everything that is done to a cluster: a table of small actions by area.

mod calls;
mod fast_path;
mod files;
mod foreign;
pub mod lines;
mod node_file;
mod nodes;
mod owned;
mod policies;
mod processes;
mod services;
mod table;
mod underlay;

use std::collections::BTreeMap;

use tweed_lab::LabError;

use crate::burst::Action;
use crate::random::pick;
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
        fast_path::KINDS,
        files::KINDS,
        foreign::KINDS,
        policies::KINDS,
        services::KINDS,
        table::KINDS,
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Three of some damages to the tables, most often without a pause between them.
fn damage(world: &mut World, target: Target, damages: &[&str]) {
    for place in 0..3 {
        let line = damages[pick(target.number.rotate_right(8 * place), damages.len())];
        world.note(line);
        world.in_node(target.node, &[format!("nft {line}")]);
    }
}

/// Everything that damages tweed's objects in the kernel and that the agent mends: a name,
/// and lines with the placeholders of [`lines`]. What nodes of the world have in the table at
/// the moment is among it.
///
/// # Errors
/// A node has no table.
pub fn damages(world: &World) -> Result<Vec<(String, Vec<String>)>, LabError> {
    let owned = owned::MENDED.iter().filter_map(|kind| match kind.run {
        Run::Lines(lines) => Some((
            kind.name.to_owned(),
            lines.iter().map(|line| (*line).to_owned()).collect(),
        )),
        _ => None,
    });
    let mut of_table: Vec<String> = policies::DAMAGES
        .iter()
        .chain(services::DAMAGES)
        .map(|line| (*line).to_owned())
        .collect();
    let mut groups = BTreeMap::new();
    for entry in world.cluster.nodes().values() {
        groups.append(&mut table::flushes(entry.node.netns())?);
    }
    // One of each group is enough.
    for line in groups.into_values().filter_map(|mut group| group.pop()) {
        if !of_table.contains(&line) {
            of_table.push(line);
        }
    }
    let lines = of_table
        .into_iter()
        .map(|line| (line.clone(), vec![format!("nft {line}")]));
    Ok(owned.chain(lines).collect())
}

/// The weights of all kinds, for [`burst`](crate::burst::burst): 0 for those whose names
/// have none of these words in them. Without words every kind has its weight.
pub fn weights(words: &[String]) -> Vec<usize> {
    let is_wanted = |kind: &Kind| {
        words.is_empty() || words.iter().any(|word| kind.name.contains(word.as_str()))
    };
    let weight = |kind: &&Kind| if is_wanted(kind) { kind.weight } else { 0 };
    kinds().iter().map(weight).collect()
}

/// Parses an argument that is part of the name of a kind.
///
/// # Errors
/// No kind is called so; all names.
pub fn part_of_a_name(text: &str) -> Result<String, String> {
    let names: Vec<&str> = kinds().iter().map(|kind| kind.name).collect();
    if names.iter().any(|name| name.contains(text)) {
        return Ok(text.to_owned());
    }
    Err(format!(
        "no action is called so; there are:\n{}",
        names.join("\n")
    ))
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
    let pod = target.pod.map_or("no pod", |pod| &world.pods[pod].name);
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
    world.is_untouched = false;
    std::thread::sleep(action.pause);
    let notes = world.take_notes().join(", ");
    Ok(format!("{done} {notes}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_choose_the_kinds_whose_names_have_them() {
        let all = weights(&[]);
        let some = weights(&["call stopped".to_owned(), "GC".to_owned()]);
        assert_eq!(all.len(), some.len());
        for ((kind, all), some) in kinds().iter().zip(all).zip(some) {
            let is_chosen = kind.name.contains("call stopped") || kind.name.contains("GC");
            assert_eq!(all, kind.weight);
            assert_eq!(some, if is_chosen { all } else { 0 }, "{}", kind.name);
        }
    }

    #[test]
    fn words_have_to_be_part_of_a_name() {
        assert!(part_of_a_name("call stopped").is_ok());
        let error = part_of_a_name("call started").unwrap_err();
        assert!(error.contains("call stopped while it runs"), "{error}");
    }
}
