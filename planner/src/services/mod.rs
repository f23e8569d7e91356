//! Where new flows to Services are sent.
//!
//! [`planner::ServicePlanner`] is the entry: it takes the events of watches in, and each plan
//! goes through two halves.
//!
//! ```text
//! events ─▶ model/ ── Change of one Service ──▶ table/ ─▶ Desired, Delta ─▶ nftables
//!             │                                   │
//!             ├─▶ explain/ ◀── what belongs ──────┘
//!             │                to a frontend
//!             └─ a writer of another kind would follow the same changes
//! ```
//!
//! - `model/` says what Services are, whoever writes them down: where each frontend leads to,
//!   who may use it, which endpoints a port sends to. It knows no number, group, slot or set.
//!   `registry` keeps the objects as `spec` and `slice` read them; `surroundings`, `options`
//!   and `reserved` are what counts besides. `service` makes a port of a Service of these, with
//!   the endpoints that `choice` picks; `claims` says who has a frontend, and `served` what is
//!   decided of it. `queue` says whose turn it is: `Model::update` plans what has its turn of one
//!   Service and gives the `Change`: the endpoints of its ports, its frontends, and which
//!   addresses have come or gone for all Services. A writer follows these, looks each frontend up
//!   in the model, and keeps what it has written itself: the model keeps no endpoints but those
//!   of the objects, and those of ports of TCP.
//! - `table/` is the writer for nftables: numbers, groups, slots, limits, affinity.
//!   [`desired`] says how the rules read them.
//! - [`explain`] says where a flow goes and why, from the model; only how many endpoints the
//!   rules use, and which group has them, comes from the table.
//! - [`stale`] says which flows conntrack has to forget.
//!
//! The tests' `evaluator` says the same as all of it in plain code, from the objects alone: the
//! plan is tested against it.

pub mod explain;
mod model;
pub mod planner;
pub mod stale;
mod table;

pub use explain::{ExplainError, Explanation, OwnAddresses, Places};
pub use model::{
    claims::Conflict,
    options::{NodePortAddresses, Options},
    refusal::{Refusal, Refused},
    service::WithoutLocal,
    surroundings::{Overlap, PodNetworks},
};
pub use planner::{Notice, ServicePlanner, Step};
pub use table::desired::{self, Delta, Desired};
pub use table::{KnownNumbers, KnownSlots, timeouts};

#[cfg(test)]
mod tests;
