//! Whether the machine had time for a test and what it runs, as the kernel's scheduler
//! counts it for the calling thread. Idle time would not tell: what has a
//! lower priority may use all of it and take nothing away.

use std::time::Duration;

/// The time of a thread in which it could have run, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Scheduled {
    ran: u64,
    waited: u64,
}

impl Scheduled {
    /// That of the calling thread since its start; nothing on a kernel that does not
    /// count it.
    #[must_use]
    pub fn now() -> Self {
        Self::parse(&std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default())
    }

    fn parse(text: &str) -> Self {
        let mut words = text.split_whitespace().map(|word| word.parse().ok());
        let mut next = || words.next().flatten().unwrap_or_default();
        let ran = next();
        let waited = next();
        Self { ran, waited }
    }

    /// How long since `earlier` was waited for a processor.
    #[must_use]
    pub fn time_waited_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.waited.saturating_sub(earlier.waited))
    }

    /// How much of it since `earlier` was waited for a processor, in percent.
    #[must_use]
    pub fn waited_since(self, earlier: Self) -> u64 {
        let ran = self.ran.saturating_sub(earlier.ran);
        let waited = self.waited.saturating_sub(earlier.waited);
        (waited * 100).checked_div(ran + waited).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_is_a_share_of_the_time_since() {
        let earlier = Scheduled::parse("1000 200 7\n");
        let now = Scheduled::parse("1300 300 9\n");
        assert_eq!(now.waited_since(earlier), 25);
        assert_eq!(now.waited_since(now), 0);
        assert_eq!(now.time_waited_since(earlier), Duration::from_nanos(100));
        assert_eq!(Scheduled::parse(""), Scheduled::default());
    }
}
