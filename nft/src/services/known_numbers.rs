//! What numbers mean in the kernel, out of the elements of an earlier run: the other
//! direction of [`super::sets`]. Pure but for the reading itself.

use std::collections::BTreeMap;

use tweed_core::family::Family;
use tweed_planner::services::KnownNumbers;
use tweed_planner::services::desired::{
    Desired, Endpoint, Frontend, NodePort, Number, Span, Tracked,
};

use super::rules::{DROP, LEADS, REJECT};
use super::sets::{
    ALLOWED, ENDPOINTS, LIMITS, MEMBER_SLOTS, NODE_PORT_TARGETS, PARTS, SLOTS, TARGETS,
};
use crate::element::{Elements, Key};
use crate::error::Error;
use crate::schema::PlannedSet;
use crate::table::Set;
use crate::value::Value;

/// Reads them. A set with elements that tweed never writes says nothing.
pub(super) fn read(
    mut elements: impl FnMut(&Set) -> Result<Option<Elements>, Error>,
) -> Result<KnownNumbers, Error> {
    let mut known = KnownNumbers::default();
    let mut each = |set: PlannedSet<Desired>| -> Result<Elements, Error> {
        Ok(elements(&set.declaration())?.unwrap_or_default())
    };
    for family in Family::BOTH {
        for row in [&TARGETS, &NODE_PORT_TARGETS] {
            let targets = each(row.of(family))?;
            let groups = targets.iter().filter_map(|(key, data)| {
                let group = group(data.as_deref()?.values()?)? & !LEADS;
                Some((frontend(family, key)?, group))
            });
            known.groups.extend(groups);
        }
        let endpoints = each(ENDPOINTS.of(family))?;
        let numbered = endpoints.iter().filter_map(|(key, data)| {
            let number = match fields(key)[..] {
                [Value::Class(number)] => number,
                _ => return None,
            };
            Some((number, endpoint(data.as_deref()?.values()?)?))
        });
        known.endpoints.extend(numbered);
        let slots = each(SLOTS.of(family))?;
        let filled = slots
            .iter()
            .filter_map(|(key, data)| Some((slot(key)?, endpoint(data.as_deref()?.values()?)?)));
        known.slots.endpoints.extend(filled);
        let limits = each(LIMITS.of(family))?;
        let empty = limits.values().filter_map(|data| {
            let number = group(data.as_deref()?.values()?)?;
            Some(((family, number), Vec::new()))
        });
        known.limits.extend(empty);
        let allowed = each(ALLOWED.of(family))?;
        for (number, span) in allowed.keys().filter_map(allowed_span) {
            known.limits.entry((family, number)).or_default().push(span);
        }
    }
    let mut numbers = |set: PlannedSet<Desired>, mask: Number| -> Result<BTreeMap<_, _>, Error> {
        let slots = each(set)?;
        let numbers = slots.iter().filter_map(|(key, data)| {
            let number = group(data.as_deref()?.values()?)?;
            Some((slot(key)?, number & mask))
        });
        Ok(numbers.collect())
    };
    known.slots.members = numbers(MEMBER_SLOTS.of(None), Number::MAX)?;
    known.slots.parts = numbers(PARTS.of(None), !LEADS)?;
    Ok(known)
}

fn fields(key: &Key) -> Vec<Value> {
    key.fields().iter().map(|field| field.first).collect()
}

fn slot(key: &Key) -> Option<(Number, u8)> {
    match fields(key)[..] {
        [Value::Class(group), Value::Index(index)] => Some((group, index.try_into().ok()?)),
        _ => None,
    }
}

fn frontend(family: Family, key: &Key) -> Option<Tracked> {
    match fields(key)[..] {
        [
            Value::Address(address),
            Value::Protocol(protocol),
            Value::Port(port),
        ] => Some(Tracked::Address(Frontend {
            address,
            protocol,
            port,
        })),
        [Value::Protocol(protocol), Value::Port(port)] => Some(Tracked::NodePort(NodePort {
            family,
            protocol,
            port,
        })),
        _ => None,
    }
}

fn allowed_span(key: &Key) -> Option<(Number, Span)> {
    let [limit, sources] = key.fields() else {
        return None;
    };
    match (limit.first, sources.first, sources.last) {
        (Value::Class(number), Value::Address(first), Value::Address(last)) => {
            Some((number, Span { first, last }))
        }
        _ => None,
    }
}

fn group(values: &[Value]) -> Option<Number> {
    match values {
        [Value::Class(REJECT | DROP)] => None,
        [Value::Class(number)] => Some(*number),
        _ => None,
    }
}

fn endpoint(values: &[Value]) -> Option<Endpoint> {
    match values {
        [Value::Address(address), Value::Port(port)] => Some(Endpoint {
            address: *address,
            port: *port,
        }),
        _ => None,
    }
}
