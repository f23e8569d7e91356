//! Waits that take place at the same time.

use anyhow::Result;

/// Does this for all of them at the same time, where each does little but wait. The error is
/// the first one in their order.
pub fn at_once<T: Send>(
    all: impl IntoIterator<Item = T>,
    does: impl Fn(T) -> Result<()> + Sync,
) -> Result<()> {
    std::thread::scope(|scope| {
        let does = &does;
        let all: Vec<_> = (all.into_iter())
            .map(|one| scope.spawn(move || does(one)))
            .collect();
        all.into_iter().try_for_each(|one| {
            one.join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    })
}
