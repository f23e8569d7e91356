//! Services held against kube-proxy: what its own tests expect, its own proxier beside, and
//! what neither of them has.
//!
//! `conformance/services-judge/recorded` has what the tests expect, and `record` beside it
//! makes that anew.

#[cfg(test)]
mod beside;
#[cfg(test)]
mod cluster;
#[cfg(test)]
#[path = "../../../planner/src/tests/dice.rs"]
mod dice;
#[cfg(test)]
mod netns;
#[cfg(test)]
mod outcome;
#[cfg(test)]
mod packet;
#[cfg(test)]
mod prober;
#[cfg(test)]
mod recorded;
#[cfg(test)]
mod rows;
#[cfg(test)]
mod tun;
#[cfg(test)]
mod tweed;
