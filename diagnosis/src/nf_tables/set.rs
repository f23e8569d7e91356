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

/// Where sets are read from.
pub(super) trait Table {
    /// Why a set cannot be read.
    type Error;

    /// The elements of a set; none if it has some of a kind that is not known.
    fn elements(&mut self, set: &str) -> Result<Option<Vec<Element>>, Self::Error>;
}

/// Reads the elements in these lists (`NFTA_SET_ELEM_LIST_ELEMENTS`) in the order of
/// their keys; none if one is of a kind that is not known: a concatenation's interval,
/// or what stands for all other keys.
pub(super) fn read<'a>(lists: impl Iterator<Item = &'a [u8]>) -> Option<Vec<Element>> {
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
    let mut elements = items.collect::<Option<Vec<_>>>()?;
    elements.sort_by(|a, b| a.key.cmp(&b.key).then(b.ends.cmp(&a.ends)));
    Some(elements)
}

/// Whether the value is in the set; none if unknown.
pub(super) fn contains(elements: &[Element], value: &Value) -> Option<bool> {
    match value {
        Value::Known(known) if fits(elements, known) => {
            Some(elements.iter().any(|one| may_be(elements, one, value)))
        }
        Value::Not(is_not) if elements.iter().all(|one| is_not(&one.key)) => Some(false),
        _ => None,
    }
}

/// Whether the value may be that of this one of the elements.
pub(super) fn may_be(elements: &[Element], one: &Element, value: &Value) -> bool {
    let has_intervals = elements.iter().any(|element| element.ends);
    match value {
        _ if one.ends => false,
        Value::Known(known) if !fits(elements, known) => true,
        Value::Known(known) if has_intervals => {
            let last = elements.iter().rfind(|element| element.key <= *known);
            last == Some(one)
        }
        Value::Known(known) => one.key == *known,
        Value::Not(is_not) => !is_not(&one.key),
        Value::Partly(_) | Value::Flow | Value::Unknown => true,
    }
}

/// Whether keys are as long as the value: those of a concatenation are longer.
fn fits(elements: &[Element], value: &[u8]) -> bool {
    elements.iter().all(|one| one.key.len() == value.len())
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
        let set = [element(&[0, 22], false), element(&[0x21, 0x18], false)];
        assert_eq!(contains(&set, &known(&[0x21, 0x18])), Some(true));
        assert_eq!(contains(&set, &known(&[0x21, 0x19])), Some(false));
        assert_eq!(contains(&set, &Value::Unknown), None);
        assert_eq!(
            contains(&set, &known(&[0, 22, 0, 0])),
            None,
            "a concatenation"
        );
        assert_eq!(
            contains(&set, &Value::Not(|key| key[0] < 0x30)),
            Some(false)
        );
        assert_eq!(contains(&set, &Value::Not(|key| key[0] == 0)), None);
    }

    #[test]
    fn an_interval_ends_before_its_end() {
        let bounds = [(0, true), (20, false), (30, true), (40, false)];
        let set = bounds.map(|(key, ends)| element(&[key], ends));
        for (value, inside) in [
            (0, false),
            (19, false),
            (20, true),
            (29, true),
            (30, false),
            (99, true),
        ] {
            assert_eq!(contains(&set, &known(&[value])), Some(inside), "{value}");
        }
    }
}
