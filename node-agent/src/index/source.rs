//! What is known of a source: whether it has listed its objects, and whether it can be
//! read.

use std::mem;

use tweed_core::object::{Event, Loss};

/// What a source has said of itself.
#[derive(Debug, Default)]
pub struct SourceState {
    /// Whether a list has been complete.
    pub listed: bool,
    /// Why it cannot be read, while it cannot be read.
    pub lost: Option<Loss>,
    /// Why it is known to be empty, while the server does not have the kind.
    pub absent: Option<String>,
}

impl SourceState {
    /// Takes in what an event says of the source. Says whether anything changed by it.
    pub fn apply<K>(&mut self, event: &Event<K>) -> bool {
        match event {
            Event::InitDone => !mem::replace(&mut self.listed, true),
            Event::Lost(loss) if self.lost.as_ref() == Some(loss) => false,
            Event::Lost(loss) => {
                self.lost = Some(loss.clone());
                true
            }
            Event::Restored => self.lost.take().is_some(),
            Event::Absent(reason) => self.absent.replace(reason.clone()).is_none(),
            Event::Init => self.absent.take().is_some(),
            Event::InitApply(_) | Event::Apply(_) | Event::Delete(_) => false,
        }
    }

    /// Whether it has listed its objects, or said that it cannot.
    pub fn has_reported(&self) -> bool {
        self.listed || self.lost.is_some()
    }
}
