//! The imaginary packets of pods that are sent through the rules of others, and how
//! it is said that they are dropped.

/// A packet, by what is known of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Probe {
    /// Comes from a pod, goes anywhere, opens a flow.
    FromPod,
    /// Comes from anywhere, goes to a pod, belongs to a flow that is open.
    ToPod,
}

/// Names the packets that `is_dropped` is true for; none if it is for none.
pub(crate) fn dropped<E>(
    mut is_dropped: impl FnMut(Probe) -> Result<bool, E>,
) -> Result<Option<String>, E> {
    let from = is_dropped(Probe::FromPod)?.then_some("what pods send");
    let to = is_dropped(Probe::ToPod)?.then_some("the answers to pods");
    let words: Vec<&str> = from.into_iter().chain(to).collect();
    Ok((!words.is_empty()).then(|| words.join(" and ")))
}

/// The cure for a chain of iptables: `chain` accepts what `program` puts there.
pub(crate) fn iptables_cure(program: &str, chain: &str) -> String {
    format!(
        "run `{program} -I {chain} -i tw+ -j ACCEPT && {program} -I {chain} -o tw+ -j ACCEPT`, \
         and after each reboot"
    )
}
