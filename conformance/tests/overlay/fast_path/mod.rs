//! The fast path: established flows between pods skip the host's stack, and nobody sees a
//! difference. What else holds for flows is held with it too by the other suites, with
//! `TWEED_LAB_FAST_PATH=on`.

mod datagrams;
mod frames;
mod live;
mod maps;
mod scene;
mod three;
mod xdp;

mod endpoints;
mod flows;
mod gso;
mod half_closed;
mod headers;
mod held;
mod hostile;
mod lacks;
mod lease;
mod life;
mod many;
mod many_pods;
mod others;
mod rules;
mod stale;
mod switch;
mod ways;
