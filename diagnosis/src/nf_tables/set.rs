//! Sets and maps without a name, which belong to one rule and never change: whether a
//! value of which little may be known is in one. Pure.

use super::packet::Value;
use tweed_netlink::nf::attributes::{each, find, number};
use tweed_netlink::nf::element::{DATA, FLAGS, INTERVAL_END, KEY, KEY_END, VALUE};
use tweed_netlink::nf::verdict::Verdict;

/// One element of a set or map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Element {
    key: Vec<u8>,
    /// Of a set of intervals: that the interval before it ends before this value.
    ends: bool,
    /// What a map of verdicts gives for it.
    pub(super) verdict: Option<Verdict>,
}

/// The elements of a set or map. Block lists have tens of thousands, so that what holds
/// for all of them is found out once and not for each.
pub(super) struct Elements {
    /// In the order of their keys; where an interval ends and the next begins at the same
    /// key, the end is first.
    sorted: Vec<Element>,
    has_intervals: bool,
    /// Whether all keys are as long as the first.
    is_uniform: bool,
}

/// Reads the elements in these lists (`NFTA_SET_ELEM_LIST_ELEMENTS`); none if one is of a
/// kind that is not known: a concatenation's interval, or what stands for all other keys.
pub(super) fn read<'a>(lists: impl Iterator<Item = &'a [u8]>) -> Option<Elements> {
    let element = |item: &[u8]| {
        let flags = find(item, FLAGS).map_or(Some(0), number)?;
        let is_known = flags & !INTERVAL_END == 0 && find(item, KEY_END).is_none();
        is_known.then_some(Element {
            key: find(find(item, KEY)?, VALUE)?.to_vec(),
            ends: flags & INTERVAL_END != 0,
            verdict: find(item, DATA).and_then(Verdict::read),
        })
    };
    let items = lists.flat_map(each).map(|(_, item)| element(item));
    Some(Elements::new(items.collect::<Option<_>>()?))
}

impl Elements {
    fn new(mut elements: Vec<Element>) -> Self {
        elements.sort_by(|a, b| a.key.cmp(&b.key).then(b.ends.cmp(&a.ends)));
        let length = elements.first().map(|one| one.key.len());
        Self {
            has_intervals: elements.iter().any(|one| one.ends),
            is_uniform: elements.iter().all(|one| Some(one.key.len()) == length),
            sorted: elements,
        }
    }

    /// Bytes of each key, if all have as many.
    pub(super) fn length(&self) -> Option<usize> {
        let first = self.sorted.first().filter(|_| self.is_uniform);
        first.map(|first| first.key.len())
    }

    /// Whether the value is in the set; none if unknown.
    pub(super) fn contains(&self, value: &Value) -> Option<bool> {
        match value {
            _ if self.decide(value) => Some(self.possible(value).next().is_some()),
            Value::Not(is_not) if self.sorted.iter().all(|one| is_not(&one.key)) => Some(false),
            Value::Partly(_) if self.possible(value).next().is_none() => Some(false),
            _ => None,
        }
    }

    /// Whether it is certain which element the value is, if it is one: not if it is only the
    /// first part of a key, as of a concatenation.
    pub(super) fn decide(&self, value: &Value) -> bool {
        matches!(value, Value::Known(known) if self.fits(known))
    }

    /// The elements that the value may be, in the order of their keys.
    pub(super) fn possible(&self, value: &Value) -> impl Iterator<Item = &Element> {
        let (elements, is_not) = match value {
            Value::Known(known) if self.fits(known) => (self.with(known), None),
            Value::Not(is_not) => (self.sorted.as_slice(), Some(*is_not)),
            Value::Known(_) | Value::Partly(_) | Value::Flow | Value::Unknown => {
                (self.sorted.as_slice(), None)
            }
        };
        // In a set of intervals a key is a bound, and not the value.
        let parts = match value {
            Value::Partly(bytes) if !self.has_intervals => bytes.clone(),
            _ => Vec::new(),
        };
        let may_be = move |one: &&Element| {
            let mut pairs = parts.iter().zip(&one.key);
            let fits = pairs.all(|(byte, key)| byte.is_none_or(|byte| byte == *key));
            fits && !one.ends && !is_not.is_some_and(|is_not| is_not(&one.key))
        };
        elements.iter().filter(may_be)
    }

    /// Whether keys are as long as the value: those of a concatenation are longer.
    fn fits(&self, value: &[u8]) -> bool {
        let first = self.sorted.first();
        first.is_none_or(|first| self.is_uniform && first.key.len() == value.len())
    }

    /// The bound that the value is behind in a set of intervals, otherwise the elements
    /// with this key.
    fn with(&self, value: &[u8]) -> &[Element] {
        let end = self.sorted.partition_point(|one| *one.key <= *value);
        let start = if self.has_intervals {
            end.saturating_sub(1)
        } else {
            self.sorted.partition_point(|one| *one.key < *value)
        };
        self.sorted.get(start..end).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn element(key: &[u8], ends: bool) -> Element {
        Element {
            key: key.to_vec(),
            ends,
            verdict: None,
        }
    }

    fn known(bytes: &[u8]) -> Value {
        Value::Known(bytes.to_vec())
    }

    #[test]
    fn a_value_is_in_a_set_of_single_values_or_not() {
        let ports = [element(&[0, 22], false), element(&[0x21, 0x18], false)];
        let set = Elements::new(ports.to_vec());
        assert_eq!(set.contains(&known(&[0x21, 0x18])), Some(true));
        assert_eq!(set.contains(&known(&[0x21, 0x19])), Some(false));
        assert_eq!(set.contains(&Value::Unknown), None);
        assert_eq!(
            set.contains(&known(&[0, 22, 0, 0])),
            None,
            "a concatenation"
        );
        assert!(set.decide(&known(&[9, 9])) && !set.decide(&known(&[0, 22, 0, 0])));
        assert_eq!(set.contains(&Value::Not(|key| key[0] < 0x30)), Some(false));
        assert_eq!(set.contains(&Value::Not(|key| key[0] == 0)), None);
    }

    #[test]
    fn an_interval_ends_before_its_end() {
        let bounds = [(0, true), (20, false), (30, true), (40, false)]
            .map(|(key, ends)| element(&[key], ends));
        let set = Elements::new(bounds.to_vec());
        for (value, inside) in [
            (0, false),
            (19, false),
            (20, true),
            (29, true),
            (30, false),
            (99, true),
        ] {
            assert_eq!(set.contains(&known(&[value])), Some(inside), "{value}");
        }
    }

    /// Whoever compared each element with all others would be at it for hours.
    #[test]
    fn a_value_is_found_in_a_set_of_very_many_intervals() {
        const INTERVALS: u32 = 1 << 18;
        let bounds = (0..INTERVALS).flat_map(|number| {
            let start = number * 16;
            [(start, false), (start + 8, true)].map(|(key, ends)| element(&key.to_be_bytes(), ends))
        });
        let set = Elements::new(bounds.collect());
        let possible = |value: &Value| set.possible(value).count();
        let inside = known(&(INTERVALS / 2 * 16 + 7).to_be_bytes());
        assert_eq!((set.contains(&inside), possible(&inside)), (Some(true), 1));
        let outside = known(&(INTERVALS / 2 * 16 + 8).to_be_bytes());
        assert_eq!(
            (set.contains(&outside), possible(&outside)),
            (Some(false), 0)
        );
        let all = INTERVALS as usize;
        assert_eq!(possible(&known(&[1])), all, "keys of another length");
        assert_eq!(possible(&Value::Unknown), all);
        assert_eq!(possible(&Value::Not(|key| key[3] == 0)), all / 16 * 15);
    }
}
