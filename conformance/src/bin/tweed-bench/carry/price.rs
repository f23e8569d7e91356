//! What the table costs a packet: `carry --price`.
//!
//! On one network, so that nothing else differs, the nodes' rules are exchanged
//! between short runs. Beside it stands a second network without any rules,
//! which is measured in the same runs, a few units on one and a few on the
//! other: what is told is the ratio of the two, in the time of the second where
//! that was least disturbed.

use std::fmt::Write;
use std::time::Duration;

use serde::Serialize;
use tweed_lab::Underlay;

use super::alone::{Alone, Pair};
use super::load::{End, pin};
use super::stage::{Crowd, Stage};
use super::subject::{Kind, Place};
use super::turns;
use crate::first::go_first;
use crate::report::{Machine, Results, json, spread};
use crate::stats::Spread;

/// The number of the network in question, and of the one beside it.
const NUMBERS: [u8; 2] = [0, 1];

/// Rules that are measured, a text for each node.
struct Rules {
    name: &'static str,
    tables: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Row {
    rules: &'static str,
    cells: Vec<Cell>,
}

/// Microseconds for each unit of a load.
#[derive(Debug, Serialize)]
struct Cell {
    place: Place,
    load: Alone,
    us: Option<Spread>,
}

/// Measures all rules in turn, `rounds` times, and gives a table.
pub fn run(
    underlay: &Underlay,
    machine: &Machine,
    (window, rounds): (Duration, usize),
    mut say: impl FnMut(&str),
) -> anyhow::Result<Results> {
    say("2 networks …");
    let [number, beside] = NUMBERS;
    let nobody = Crowd { pods: 0, nodes: 0 };
    let mut stage = Stage::new(underlay, Kind::Tweed, number, nobody)?;
    let steady = Stage::new(underlay, Kind::NoConntrack, beside, nobody)?;
    let rules = rules(&mut stage)?;
    let cells: Vec<(Place, Alone)> = Place::ALL
        .into_iter()
        .flat_map(|place| Alone::ALL.map(|load| (place, load)))
        .collect();
    let mut samples = vec![vec![Vec::new(); cells.len()]; rules.len()];
    pin(End::Client)?;
    go_first()?;
    for round in 0..rounds {
        say(&format!("round {} of {rounds} …", round + 1));
        for at in turns(round, rules.len()) {
            let (Some(rules), Some(row)) = (rules.get(at), samples.get_mut(at)) else {
                continue;
            };
            stage.put(&rules.tables)?;
            for ((place, load), into) in cells.iter().zip(row) {
                let paths = (&stage.path(*place)?, &steady.path(*place)?);
                into.push(load.measure(paths, window)?);
            }
        }
    }
    let undisturbed = undisturbed(&samples);
    let row = |(rules, row): (&Rules, &Vec<Vec<Pair>>)| {
        let cell = |((place, load), (pairs, least)): (&(Place, Alone), (&Vec<Pair>, &f64))| Cell {
            place: *place,
            load: *load,
            us: price(pairs, *least),
        };
        Row {
            rules: rules.name,
            cells: cells
                .iter()
                .zip(row.iter().zip(&undisturbed))
                .map(cell)
                .collect(),
        }
    };
    let rows: Vec<Row> = rules.iter().zip(&samples).map(row).collect();
    Ok(Results {
        name: "carry-price",
        markdown: markdown(machine, rounds, &rows),
        json: json(&rows)?,
        svg: String::new(),
    })
}

fn rules(stage: &mut Stage) -> anyhow::Result<Vec<Rules>> {
    let whole = stage.tables()?;
    let masquerading = stage.only_masquerading(NUMBERS[0]);
    let beside = |chains: fn(&str) -> String| -> Vec<String> {
        let both = |(one, whole): (&String, &String)| format!("{one}\n{}", chains(whole));
        masquerading.iter().zip(&whole).map(both).collect()
    };
    let (hooks, untracked) = (beside(hooks_alone), beside(hooks_untracked));
    let nothing = vec![String::new(); whole.len()];
    Ok([
        ("no table, no conntrack", nothing),
        ("only masquerading", masquerading),
        ("and the hooks, empty", hooks),
        ("and what wraps untracked", untracked),
        ("the whole table", whole.clone()),
        ("the whole table, again", whole),
    ]
    .map(|(name, tables)| Rules { name, tables })
    .into())
}

/// A table with the chains of `listing` at their hooks and nothing in them.
fn hooks_alone(listing: &str) -> String {
    hooks(listing, |_| "")
}

/// The same, but packets that wrap others are kept out of conntrack at once: by
/// that much the table makes the path shorter.
fn hooks_untracked(listing: &str) -> String {
    hooks(listing, |hook| {
        if hook.contains("priority raw") {
            "udp dport 8472 notrack"
        } else {
            ""
        }
    })
}

/// Chains of type `nat` are left out: they are entered once in a flow.
fn hooks(listing: &str, rule: impl Fn(&str) -> &'static str) -> String {
    let mut table = "table inet hooks {\n".to_owned();
    let hooks = listing
        .lines()
        .filter(|line| line.contains("type filter hook"));
    for (number, hook) in hooks.enumerate() {
        let rule = rule(hook);
        // Writing to a string cannot fail.
        let _ = writeln!(table, "chain c{number} {{\n{hook}\n{rule}\n}}");
    }
    table + "}\n"
}

/// For each cell the steady path's lowest time of all.
fn undisturbed(samples: &[Vec<Vec<Pair>>]) -> Vec<f64> {
    let cells = samples.first().map_or(0, Vec::len);
    let lowest = |cell: usize| {
        let rows = samples.iter().filter_map(|row| row.get(cell));
        rows.flatten()
            .map(|pair| pair.steady)
            .fold(f64::INFINITY, f64::min)
    };
    (0..cells).map(lowest).collect()
}

/// What a unit takes where it takes `least` on the steady path.
fn price(pairs: &[Pair], least: f64) -> Option<Spread> {
    let times: Vec<f64> = pairs
        .iter()
        .map(|pair| pair.own / pair.steady * least)
        .collect();
    Spread::confidence(&times)
}

fn markdown(machine: &Machine, rounds: usize, rows: &[Row]) -> String {
    let mut text = format!(
        "{machine}. µs of CPU, the median of {rounds} runs (where the true one lies, with 95 % \
         confidence). One thread is both ends, before all others on its CPU; the nodes' rules are \
         exchanged between runs.\n\n"
    );
    let Some(first) = rows.first() else {
        return text;
    };
    // Writing to a string cannot fail.
    let _ = write!(text, "| |");
    for cell in &first.cells {
        let _ = write!(text, " {}, {} |", cell.load.name(), cell.place.name());
    }
    let _ = writeln!(text, "\n|---|{}", "--:|".repeat(first.cells.len()));
    for row in rows {
        let _ = write!(text, "| {} |", row.rules);
        for cell in &row.cells {
            let _ = write!(text, " {} |", spread(cell.us));
        }
        let _ = writeln!(text);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTING: &str = "table inet tweed {
	chain prerouting_raw {
		type filter hook prerouting priority raw; policy accept;
		iifgroup 116 jump from_pod
	}
	chain from_pod {
		drop
	}
	chain input {
		type filter hook input priority filter; policy accept;
		udp dport 8472 drop
	}
	chain postrouting_nat {
		type nat hook postrouting priority srcnat; policy accept;
	}
}
";

    #[test]
    fn of_a_table_the_hooks_of_every_packet_are_left() {
        let alone = hooks_alone(LISTING);
        assert_eq!(alone.matches("hook").count(), 1 + 2, "{alone}");
        assert!(alone.contains("hook prerouting priority raw;"), "{alone}");
        assert!(
            !alone.contains("drop") && !alone.contains("jump"),
            "{alone}"
        );
        assert_eq!(hooks_untracked(LISTING).matches("notrack").count(), 1);
    }

    #[test]
    fn a_run_on_a_machine_half_as_fast_says_the_same() {
        let pair = |own, steady| Pair { own, steady };
        let samples = vec![vec![vec![pair(12.0, 10.0), pair(24.0, 20.0)]]];
        assert_eq!(undisturbed(&samples), [10.0]);
        let price = price(&samples[0][0], 10.0).unwrap();
        assert_eq!((price.low, price.high), (12.0, 12.0));
    }
}
