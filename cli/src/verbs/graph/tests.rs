//! What is drawn of a cluster in which one way is broken, and one node does not answer.

use serde_json::{Value, json};

use super::*;
use crate::answered::Answered;
use crate::output::Format;

struct Three;

impl Agents for Three {
    fn ask(&self, _: Option<&[String]>, arguments: &[String]) -> Result<Vec<Answered<Vec<u8>>>> {
        let way = |node: &str, state: &str, round_trip: Option<u64>, missed: u32| {
            json!({
                "node": node, "address": "10.244.2.0", "underlay": "192.0.2.12", "way": "vxlan",
                "state": state, "mtu": null, "roundTripUs": round_trip,
                "answeredMsAgo": null, "missed": missed,
            })
        };
        let (a, b) = match arguments[0].as_str() {
            "peers" => (
                json!({ "peers": [way("b<", "answers", Some(1234), 0), way("c", "silent", None, 7)] }),
                json!({ "peers": [way("a", "answers", Some(900), 0)] }),
            ),
            _ => (
                json!({ "node": "a", "ready": true }),
                json!({ "node": "b<", "ready": false }),
            ),
        };
        let printed = |report| {
            let document = json!({ "version": 1, arguments[0].as_str(): report });
            Ok(serde_json::to_vec(&document).unwrap())
        };
        let down = Err(Unanswered::new("its agent is down"));
        Ok(vec![
            ("a".to_owned(), printed(a)),
            ("b<".to_owned(), printed(b)),
            ("c".to_owned(), down),
        ])
    }

    fn get(&self, _: &str) -> Result<Option<Value>> {
        Ok(None)
    }
}

#[test]
fn nodes_and_ways_are_drawn_with_what_is_wrong() {
    let mut out = Vec::new();
    let mut page = Page::new(&mut out, Format::Table);
    let exit = Graph { file: None }.in_cluster(&Three, &mut page).unwrap();
    assert_eq!(exit, Exit::Undetermined);
    let svg = String::from_utf8(out).unwrap();
    let count = |part: &str| svg.matches(part).count();
    assert_eq!(count(r#"<line class="way""#), 1);
    assert_eq!(count(r#"<line class="broken""#), 1);
    assert_eq!(count(r#"<rect class="good""#), 1);
    assert_eq!(count(r#"<rect class="bad""#), 2);
    for text in [
        ">b&lt;</text>",
        ">not ready</text>",
        ">no answer</text>",
        ">1.2 ms</text>",
        ">a: silent, 7 probes lost</text>",
        ">3 nodes; what 1 of them know of the ways to others could not be asked</text>",
    ] {
        assert!(svg.contains(text), "{text}: {svg}");
    }
}

#[test]
fn all_of_a_large_cluster_is_inside_the_drawing() {
    let answers = |count: usize| {
        let report = json!({ "node": "n", "ready": true });
        let report: status::Report = serde_json::from_value(report).unwrap();
        let of = |number| (format!("node{number:04}"), Ok(report.clone()));
        (0..count).map(of).collect::<Vec<_>>()
    };
    for count in [0, 1, 2, 7, 1000] {
        let svg = picture::draw(&answers(count), &[]);
        let number = |text: &str| text.split('"').nth(1).unwrap().parse::<usize>().unwrap();
        let size = number(svg.split(" width=").nth(1).unwrap());
        let boxes = svg
            .lines()
            .filter(|line| line.starts_with(r#"<rect class="good""#));
        let places: Vec<usize> = boxes
            .map(|line| number(line.split(" x=").nth(1).unwrap()))
            .collect();
        assert_eq!(places.len(), count);
        assert!(places.iter().all(|x| x + 170 <= size), "{size}: {places:?}");
    }
}
