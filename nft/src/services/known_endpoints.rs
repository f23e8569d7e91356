//! Which endpoints a group has in the kernel. Each element is read by itself, so it costs
//! nothing of the size of the maps. Pure but for the reading itself.

use std::collections::BTreeSet;

use tweed_core::family::Family;
use tweed_planner::services::desired::{Desired, Endpoint, MAX_SLOTS, Number};

use super::known_numbers::endpoint;
use super::rules::LEADS;
use super::sets::{ENDPOINTS, MEMBER_SLOTS, PARTS, SLOT, SLOTS};
use crate::element::{Data, Key};
use crate::error::Error;
use crate::schema::{NUMBER, PlannedSet};
use crate::table::Set;
use crate::value::Value;

/// Reads the endpoints of a group, or of its parts. `element` reads what a map has for a
/// key, if it has it.
pub(super) fn read(
    family: Family,
    group: Number,
    mut element: impl FnMut(&Set, &Key) -> Result<Option<Box<Data>>, Error>,
) -> Result<BTreeSet<Endpoint>, Error> {
    let mut get = |map: PlannedSet<Desired>, key: &Key| -> Result<Option<Vec<Value>>, Error> {
        let data = element(&map.declaration(), key)?;
        Ok(data.and_then(|data| data.values().map(<[Value]>::to_vec)))
    };
    let mut groups = Vec::new();
    for index in 0..MAX_SLOTS {
        let part = get(PARTS.of(None), &(SLOT.key)(&(group, index)))?;
        let Some([Value::Class(part)]) = part.as_deref() else {
            break;
        };
        groups.push(*part & !LEADS);
    }
    if groups.is_empty() {
        groups.push(group);
    }
    let mut endpoints = BTreeSet::new();
    for group in groups {
        for index in 0..MAX_SLOTS {
            let key = (SLOT.key)(&(group, index));
            let mut found = get(SLOTS.of(family), &key)?;
            if found.is_none() {
                let member = get(MEMBER_SLOTS.of(None), &key)?;
                let Some([Value::Class(member)]) = member.as_deref() else {
                    break;
                };
                found = get(ENDPOINTS.of(family), &(NUMBER.key)(member))?;
            }
            endpoints.extend(found.as_deref().and_then(endpoint));
        }
    }
    Ok(endpoints)
}
