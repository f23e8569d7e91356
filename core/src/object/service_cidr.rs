//! A ServiceCIDR as its source describes it: not yet validated.

/// A ServiceCIDR, with only the fields that tweed uses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServiceCidr {
    /// `metadata.name`.
    pub name: String,
    /// `spec.cidrs`: where the API server takes cluster IPs from.
    pub cidrs: Vec<String>,
}

object!(ServiceCidr, "ServiceCIDRs");
