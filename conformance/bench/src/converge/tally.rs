//! What a client asked a server for, and how much it was answered. Pure.

use std::collections::BTreeMap;

use hyper::Method;

/// A kind of request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asked {
    /// A page of the list of Nodes.
    Page,
    /// A watch of Nodes.
    Watch,
    /// One Node.
    Node,
    /// A change: of the own Node's status, or an Event.
    Change,
    /// Anything else.
    Other,
}

impl Asked {
    /// All kinds, with the words for them.
    pub const ALL: [(Self, &str); 5] = [
        (Self::Page, "pages of the list of Nodes"),
        (Self::Watch, "watches of Nodes"),
        (Self::Node, "GET of one Node"),
        (Self::Change, "PATCH and POST"),
        (Self::Other, "others"),
    ];

    /// The kind of a request.
    pub fn of(method: &Method, path: &str, query: &BTreeMap<&str, &str>) -> Self {
        match (method, path) {
            (&Method::GET, "/api/v1/nodes") if query.contains_key("watch") => Self::Watch,
            (&Method::GET, "/api/v1/nodes") => Self::Page,
            (&Method::GET, path) if path.starts_with("/api/v1/nodes/") => Self::Node,
            (&Method::GET, _) => Self::Other,
            _ => Self::Change,
        }
    }
}

/// Numbers of requests and of bytes in the bodies of answers.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    answers: BTreeMap<Asked, Count>,
    events: Count,
}

/// How many, and how many bytes in all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// How many.
    pub number: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Count {
    fn add(&mut self, number: u64, bytes: u64) {
        self.number += number;
        self.bytes += bytes;
    }

    fn since(self, before: Self) -> Self {
        Self {
            number: self.number - before.number,
            bytes: self.bytes - before.bytes,
        }
    }
}

impl Tally {
    /// A request of this kind was answered with so many bytes.
    pub fn answered(&mut self, asked: Asked, bytes: u64) {
        self.answers.entry(asked).or_default().add(1, bytes);
    }

    /// So many events of a watch were sent.
    pub fn sent(&mut self, events: usize, bytes: usize) {
        self.events.add(events as u64, bytes as u64);
    }

    /// The requests of a kind.
    pub fn of(&self, asked: Asked) -> Count {
        self.answers.get(&asked).copied().unwrap_or_default()
    }

    /// The events of watches.
    pub fn events(&self) -> Count {
        self.events
    }

    /// What came after `before`.
    pub fn since(&self, before: &Self) -> Self {
        let kinds = Asked::ALL.into_iter();
        Self {
            answers: kinds
                .map(|(asked, _)| (asked, self.of(asked).since(before.of(asked))))
                .collect(),
            events: self.events.since(before.events),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_told_apart_and_what_came_later_is_counted_alone() {
        let watch = BTreeMap::from([("watch", "1")]);
        let none = BTreeMap::new();
        let kinds = [
            (Method::GET, "/api/v1/nodes", &none, Asked::Page),
            (Method::GET, "/api/v1/nodes", &watch, Asked::Watch),
            (Method::GET, "/api/v1/nodes/alpha", &none, Asked::Node),
            (Method::GET, "/version", &none, Asked::Other),
            (
                Method::PATCH,
                "/api/v1/nodes/alpha/status",
                &none,
                Asked::Change,
            ),
        ];
        let mut tally = Tally::default();
        for (method, path, query, asked) in kinds {
            assert_eq!(Asked::of(&method, path, query), asked);
            tally.answered(asked, 100);
        }
        let before = tally.clone();
        tally.answered(Asked::Page, 7);
        tally.sent(3, 30);
        let later = tally.since(&before);
        let count = |number, bytes| Count { number, bytes };
        assert_eq!(later.of(Asked::Page), count(1, 7));
        assert_eq!(later.of(Asked::Watch), count(0, 0));
        assert_eq!(later.events(), count(3, 30));
    }
}
