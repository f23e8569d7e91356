//! What became of each request of one ping.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::ping::PingReport;

/// How many errors are kept word for word: a path that is gone makes 100 in a
/// second, which all say the same.
const ERRORS_KEPT: usize = 100;

/// Numbers go from 1. A number is in `open` from its request to its answer, or
/// in `refused`; the others up to `sent` are answered.
#[derive(Debug, Default)]
pub(super) struct Account {
    sent: u32,
    missed: u32,
    open: BTreeMap<u32, Instant>,
    refused: BTreeSet<u32>,
    round_trips: Duration,
    errors: Vec<String>,
}

impl Account {
    /// A request that is sent now, after so many moments at which none was;
    /// its number.
    pub(super) fn request(&mut self, now: Instant, missed: u32) -> u32 {
        self.missed += missed;
        self.sent += 1;
        self.open.insert(self.sent, now);
        self.sent
    }

    /// The own kernel has not sent that request: it counts, as lost.
    pub(super) fn refuse(&mut self, number: u32, why: &str) {
        self.open.remove(&number);
        self.refused.insert(number);
        self.error(format!("request {number} could not be sent: {why}"));
    }

    /// The answer to a request. A second one, and one to what was never sent,
    /// count for nothing.
    pub(super) fn answer(&mut self, number: u32, now: Instant) {
        if let Some(sent) = self.open.remove(&number) {
            self.round_trips += now.saturating_duration_since(sent);
        }
    }

    /// What somebody says instead of an answer.
    pub(super) fn error(&mut self, what: String) {
        if self.errors.len() < ERRORS_KEPT {
            self.errors.push(what);
        }
    }

    /// The latest number.
    pub(super) fn sent(&self) -> u32 {
        self.sent
    }

    /// Whether there was any answer.
    pub(super) fn has_answer(&self) -> bool {
        self.answers() > 0
    }

    /// Whether no answer can come any more.
    pub(super) fn is_settled(&self) -> bool {
        self.open.is_empty()
    }

    fn answers(&self) -> u32 {
        let without = self.open.len() + self.refused.len();
        let without = u32::try_from(without).unwrap_or(u32::MAX);
        self.sent.saturating_sub(without)
    }

    /// The end: what is open has been lost.
    pub(super) fn report(self) -> PingReport {
        let answers = self.answers();
        let average = self.round_trips.as_secs_f64() * 1000.0 / f64::from(answers);
        let answered = (1..=self.sent)
            .filter(|number| !self.open.contains_key(number) && !self.refused.contains(number));
        PingReport {
            sent: self.sent,
            missed: self.missed,
            answered: answered.collect(),
            average_ms: (answers > 0).then_some(average),
            errors: self.errors,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests 10 ms apart, from one moment on.
    fn requests(count: u32) -> (Account, Instant) {
        let start = Instant::now();
        let mut account = Account::default();
        for number in 1..=count {
            let now = start + Duration::from_millis(10) * (number - 1);
            assert_eq!(account.request(now, 0), number);
        }
        (account, start)
    }

    #[test]
    fn all_answered_is_nothing_lost() {
        let (mut account, start) = requests(3);
        for number in 1..=3 {
            assert!(!account.is_settled());
            let sent = start + Duration::from_millis(10) * (number - 1);
            account.answer(number, sent + Duration::from_millis(number.into()));
        }
        assert!(account.is_settled());
        let report = account.report();
        assert_eq!((report.sent, report.lost()), (3, 0));
        assert_eq!(report.answered, BTreeSet::from([1, 2, 3]));
        let average = report.average_ms.unwrap();
        assert!((average - 2.0).abs() < 1e-9, "{average}");
    }

    #[test]
    fn a_request_without_an_answer_is_lost_and_a_late_one_is_not() {
        let (mut account, start) = requests(3);
        account.answer(3, start + Duration::from_millis(21));
        account.answer(1, start + Duration::from_secs(1));
        assert!(!account.is_settled());
        let report = account.report();
        assert_eq!((report.sent, report.lost()), (3, 1));
        assert_eq!(report.answered, BTreeSet::from([1, 3]));
    }

    #[test]
    fn a_duplicate_counts_once_and_no_answer_comes_before_its_request() {
        let (mut account, start) = requests(2);
        for _ in 0..2 {
            account.answer(1, start + Duration::from_millis(4));
        }
        account.answer(0, start);
        account.answer(3, start);
        assert_eq!(account.request(start, 0), 3);
        let report = account.report();
        assert_eq!((report.sent, report.lost()), (3, 2));
        assert_eq!(report.average_ms, Some(4.0));
    }

    #[test]
    fn what_could_not_be_sent_is_lost_with_its_reason() {
        let (mut account, start) = requests(2);
        account.refuse(2, "Network is unreachable");
        account.answer(1, start);
        // Nothing can answer it; should something seem to, it is still lost.
        account.answer(2, start);
        assert!(account.is_settled());
        let report = account.report();
        assert_eq!((report.sent, report.lost()), (2, 1));
        assert_eq!(
            report.errors,
            ["request 2 could not be sent: Network is unreachable"]
        );
    }

    #[test]
    fn moments_without_a_request_are_told() {
        let mut account = Account::default();
        account.request(Instant::now(), 0);
        account.request(Instant::now(), 7);
        assert_eq!((account.sent(), account.report().missed), (2, 7));
    }

    #[test]
    fn without_any_answer_there_is_no_average() {
        let (account, _) = requests(1);
        assert!(!account.has_answer());
        assert_eq!(account.report().average_ms, None);
    }

    #[test]
    fn the_first_errors_are_enough() {
        let (mut account, _) = requests(1);
        for number in 0..1000 {
            account.error(format!("error {number}"));
        }
        let errors = account.report().errors;
        assert_eq!(errors.len(), ERRORS_KEPT);
        assert_eq!(errors[0], "error 0");
    }
}
