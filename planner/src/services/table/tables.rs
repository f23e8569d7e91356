//! The desired elements, and what has changed in them since the last plan.

/// Those of Services.
pub type Tables = crate::tables::Tables<super::desired::Desired>;

/// Puts a value under a key of a table, or nothing, and writes the change down:
/// `put!(tables, name of the field, key, value)`.
macro_rules! put {
    ($tables:expr, $($field:ident).+, $key:expr, $value:expr) => {
        $crate::tables::put(
            &mut $tables.desired.$($field).+,
            $tables.delta.as_mut().map(|delta| &mut delta.$($field).+),
            $key,
            $value,
        )
    };
}
pub(super) use put;

/// Makes a table hold these keys and values, and writes the change down.
macro_rules! replace {
    ($tables:expr, $($field:ident).+, $new:expr) => {{
        let change = tweed_core::keyed::diff(&$tables.desired.$($field).+, &$new);
        change.apply(&mut $tables.desired.$($field).+);
        if let Some(delta) = &mut $tables.delta {
            delta.$($field).+.extend(change);
        }
    }};
}
pub(super) use replace;
