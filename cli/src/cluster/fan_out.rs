//! Asking many at once, and a bar that shows how far it is.

use std::io::{self, IsTerminal as _, Write as _};

use futures::{StreamExt as _, stream};

/// Width of the bar, in characters.
const WIDTH: usize = 30;

/// Asks each of `items`, at most `parallel` at once; the answers are in their order. `step` is
/// called after each answer.
pub async fn fan_out<T, R>(
    items: &[T],
    parallel: usize,
    ask: impl AsyncFn(&T) -> R,
    mut step: impl FnMut(),
) -> Vec<R> {
    let ask = &ask;
    let asked = items.iter().enumerate().map(|(number, item)| async move {
        let answer = ask(item).await;
        (number, answer)
    });
    let mut asked = stream::iter(asked).buffer_unordered(parallel);
    let mut answers = Vec::with_capacity(items.len());
    while let Some(answer) = asked.next().await {
        answers.push(answer);
        step();
    }
    answers.sort_by_key(|(number, _)| *number);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

/// A bar on stderr, removed when it is dropped.
#[derive(Debug)]
pub(super) struct Progress {
    done: usize,
    all: usize,
    is_shown: bool,
}

impl Progress {
    /// A bar for so many answers, if stderr is a terminal.
    pub(super) fn on_terminal(all: usize) -> Self {
        Self {
            done: 0,
            all,
            is_shown: io::stderr().is_terminal(),
        }
    }

    /// One more answer.
    pub(super) fn step(&mut self) {
        self.done += 1;
        if self.is_shown {
            let filled = "#".repeat(WIDTH * self.done / self.all.max(1));
            let (done, all) = (self.done, self.all);
            // Without stderr there is nobody to show it to, here and below.
            let _ = write!(io::stderr(), "\r[{filled:<WIDTH$}] {done}/{all} nodes");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.is_shown && self.done > 0 {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
