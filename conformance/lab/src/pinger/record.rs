//! The requests of one ping and their answers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::ping::PingReport;

/// Maximum number of error texts that are kept: a broken path causes 100 equal
/// errors a second.
const MAX_ERRORS: usize = 100;

/// Requests are numbered from 1. A number is in `open` between its request and its
/// answer, or in `unsent`; all other numbers up to `sent` are answered.
#[derive(Debug, Default)]
pub(super) struct PingRecord {
    sent: u32,
    missed: u32,
    open: BTreeMap<u32, Instant>,
    unsent: BTreeSet<u32>,
    round_trips: Duration,
    errors: Vec<String>,
}

impl PingRecord {
    /// Records a request that is sent now, after `missed` skipped ones. Returns its
    /// number.
    pub(super) fn request(&mut self, now: Instant, missed: u32) -> u32 {
        self.missed += missed;
        self.sent += 1;
        self.open.insert(self.sent, now);
        self.sent
    }

    /// Records that the kernel has not sent a request: it counts as lost.
    pub(super) fn send_failed(&mut self, number: u32, why: &str) {
        self.open.remove(&number);
        self.unsent.insert(number);
        self.error(format!("request {number} could not be sent: {why}"));
    }

    /// Records the answer to a request. Duplicates, and answers to requests that
    /// were never sent, are ignored.
    pub(super) fn answer(&mut self, number: u32, now: Instant) {
        if let Some(sent) = self.open.remove(&number) {
            self.round_trips += now.saturating_duration_since(sent);
        }
    }

    /// Records an error that came instead of an answer.
    pub(super) fn error(&mut self, what: String) {
        if self.errors.len() < MAX_ERRORS {
            self.errors.push(what);
        }
    }

    /// The number of the last request.
    pub(super) fn sent(&self) -> u32 {
        self.sent
    }

    /// Whether any request has been answered.
    pub(super) fn has_answer(&self) -> bool {
        self.answers() > 0
    }

    /// Whether no answer is outstanding.
    pub(super) fn is_settled(&self) -> bool {
        self.open.is_empty()
    }

    fn answers(&self) -> u32 {
        let without = self.open.len() + self.unsent.len();
        let without = u32::try_from(without).unwrap_or(u32::MAX);
        self.sent.saturating_sub(without)
    }

    /// The final report: open requests count as lost.
    pub(super) fn report(self) -> PingReport {
        let answers = self.answers();
        let average = self.round_trips.as_secs_f64() * 1000.0 / f64::from(answers);
        let answered = (1..=self.sent)
            .filter(|number| !self.open.contains_key(number) && !self.unsent.contains(number));
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

    /// A record with `count` requests, 10 ms apart, and the time of the first.
    fn requests(count: u32) -> (PingRecord, Instant) {
        let start = Instant::now();
        let mut record = PingRecord::default();
        for number in 1..=count {
            let now = start + Duration::from_millis(10) * (number - 1);
            assert_eq!(record.request(now, 0), number);
        }
        (record, start)
    }

    #[test]
    fn answered_requests_are_not_lost() {
        let (mut record, start) = requests(3);
        for number in 1..=3 {
            assert!(!record.is_settled());
            let sent = start + Duration::from_millis(10) * (number - 1);
            record.answer(number, sent + Duration::from_millis(number.into()));
        }
        assert!(record.is_settled());
        let report = record.report();
        assert_eq!((report.sent, report.lost()), (3, 0));
        assert_eq!(report.answered, BTreeSet::from([1, 2, 3]));
        let average = report.average_ms.unwrap();
        assert!((average - 2.0).abs() < 1e-9, "{average}");
    }

    #[test]
    fn a_request_without_an_answer_is_lost_and_one_with_a_late_answer_is_not() {
        let (mut record, start) = requests(3);
        record.answer(3, start + Duration::from_millis(21));
        record.answer(1, start + Duration::from_secs(1));
        assert!(!record.is_settled());
        let report = record.report();
        assert_eq!((report.sent, report.lost()), (3, 1));
        assert_eq!(report.answered, BTreeSet::from([1, 3]));
    }

    #[test]
    fn duplicates_and_answers_to_unsent_requests_do_not_count() {
        let (mut record, start) = requests(2);
        for _ in 0..2 {
            record.answer(1, start + Duration::from_millis(4));
        }
        record.answer(0, start);
        record.answer(3, start);
        assert_eq!(record.request(start, 0), 3);
        let report = record.report();
        assert_eq!((report.sent, report.lost()), (3, 2));
        assert_eq!(report.average_ms, Some(4.0));
    }

    #[test]
    fn a_request_that_could_not_be_sent_is_lost_with_its_reason() {
        let (mut record, start) = requests(2);
        record.send_failed(2, "Network is unreachable");
        record.answer(1, start);
        // An answer to a request that was not sent does not count.
        record.answer(2, start);
        assert!(record.is_settled());
        let report = record.report();
        assert_eq!((report.sent, report.lost()), (2, 1));
        assert_eq!(
            report.errors,
            ["request 2 could not be sent: Network is unreachable"]
        );
    }

    #[test]
    fn skipped_requests_are_counted() {
        let mut record = PingRecord::default();
        record.request(Instant::now(), 0);
        record.request(Instant::now(), 7);
        assert_eq!((record.sent(), record.report().missed), (2, 7));
    }

    #[test]
    fn without_any_answer_there_is_no_average() {
        let (record, _) = requests(1);
        assert!(!record.has_answer());
        assert_eq!(record.report().average_ms, None);
    }

    #[test]
    fn only_the_first_errors_are_kept() {
        let (mut record, _) = requests(1);
        for number in 0..1000 {
            record.error(format!("error {number}"));
        }
        let errors = record.report().errors;
        assert_eq!(errors.len(), MAX_ERRORS);
        assert_eq!(errors[0], "error 0");
    }
}
