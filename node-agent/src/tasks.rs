//! The tasks that run as long as the agent does. One that ends by itself is an
//! error in the program, mostly a panic: an agent without it would go on as if
//! all were well, and say ready, without hearing of a Node ever again. So the
//! whole process has to end, for kubelet or systemd to start it again.

use std::collections::HashMap;
use std::future::Future;

use tokio::task::{Id, JoinError, JoinSet};

/// Tasks that must not end. Dropped, it ends them.
#[derive(Debug, Default)]
pub struct Tasks {
    set: JoinSet<()>,
    names: HashMap<Id, &'static str>,
}

impl Tasks {
    /// Starts a task; `name` says what it does: `the HTTP server`.
    pub fn spawn(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let id = self.set.spawn(task).id();
        self.names.insert(id, name);
    }

    /// Ends all tasks, and waits until what they had is closed.
    pub async fn end(mut self) {
        self.set.shutdown().await;
    }

    /// Waits for the first task that ends, and tells which and how; for ever if there is none.
    pub async fn ended(&mut self) -> String {
        let (id, how) = match self.set.join_next_with_id().await {
            None => std::future::pending().await,
            Some(Ok((id, ()))) => (id, "has returned".to_owned()),
            Some(Err(error)) => (error.id(), how(error)),
        };
        let task = self.names.get(&id).copied().unwrap_or("a task");
        format!("{task} {how}")
    }
}

/// How a task has ended that did not return.
fn how(error: JoinError) -> String {
    let panic = match error.try_into_panic() {
        Ok(panic) => panic,
        Err(error) => return format!("has ended: {error}"),
    };
    let text = (panic.downcast_ref::<&str>().copied())
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("has panicked: {}", text.unwrap_or("without a message"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first_end(tasks: impl FnOnce(&mut Tasks)) -> String {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.build().unwrap();
        runtime.block_on(async {
            let mut all = Tasks::default();
            all.spawn("the task that goes on", std::future::pending());
            tasks(&mut all);
            all.ended().await
        })
    }

    #[test]
    fn the_end_of_a_task_is_told_with_its_name_and_how_it_ended() {
        let ended = first_end(|tasks| {
            let number = 7;
            tasks.spawn("the one", async move { panic!("out of luck: {number}") });
        });
        assert_eq!(ended, "the one has panicked: out of luck: 7");
        let ended = first_end(|tasks| tasks.spawn("the other", async {}));
        assert_eq!(ended, "the other has returned");
    }
}
