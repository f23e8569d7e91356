//! Memory that is free is given back to the node.
//!
//! The allocator keeps what is freed between things that stay: after thousands of policies or
//! pods have gone that may be most of what the agent has.

use std::time::Duration;

/// Time between two times that free memory is given back.
const PERIOD: Duration = Duration::from_secs(30);

/// Gives free memory back periodically, for ever.
pub async fn give_back() {
    let mut times = tokio::time::interval(PERIOD);
    loop {
        times.tick().await;
        // With much of it that takes milliseconds.
        let _ = tokio::task::spawn_blocking(trim).await;
    }
}

/// All threads take memory from one heap. By default each has its own, and keeps what is freed
/// in it for itself. To be called before there are threads.
#[cfg(target_env = "gnu")]
pub fn share_heap() {
    #[expect(
        unsafe_code,
        reason = "there is no safe wrapper; it only sets a number"
    )]
    // SAFETY: mallopt(3) may be called while there is only one thread.
    unsafe {
        nix::libc::mallopt(nix::libc::M_ARENA_MAX, 1);
    }
}

/// Other allocators have one heap.
#[cfg(not(target_env = "gnu"))]
pub fn share_heap() {}

/// Gives back every free page of the heap.
#[cfg(target_env = "gnu")]
fn trim() {
    #[expect(
        unsafe_code,
        reason = "there is no safe wrapper; it only looks at free memory"
    )]
    // SAFETY: malloc_trim(3) may be called at any time and from any thread.
    unsafe {
        nix::libc::malloc_trim(0);
    }
}

/// Other allocators do so by themselves.
#[cfg(not(target_env = "gnu"))]
fn trim() {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Resident memory in bytes.
    fn resident() -> usize {
        let text = std::fs::read_to_string("/proc/self/statm").unwrap();
        let pages: usize = text.split(' ').nth(1).unwrap().parse().unwrap();
        pages * 4096
    }

    #[cfg(target_env = "gnu")]
    #[test]
    fn memory_between_things_that_stay_is_given_back() {
        const SIZE: usize = 64 << 20;
        let mut all: Vec<Option<Box<[u8; 1024]>>> = Vec::new();
        all.resize_with(SIZE / 1024, || Some(Box::new([1; 1024])));
        for at in (0..all.len()).filter(|at| at % 64 != 0) {
            all[at] = None;
        }
        let before = resident();
        trim();
        let after = resident();
        assert!(after + SIZE / 2 < before, "{before} {after}");
        drop(all);
    }
}
