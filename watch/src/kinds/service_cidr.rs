//! Decoding of ServiceCIDRs.
//!
//! The kind is in `v1` since Kubernetes 1.33. A server that has none, or has it in
//! `v1beta1` only, is as good as one without such objects.

use tweed_core::object::service_cidr::ServiceCidr;

use super::lossy;
use super::metadata::Metadata;
use crate::kind::{InvalidName, Kind};

message! {
    /// The used fields of a ServiceCIDR.
    pub struct ServiceCidrFields {
        metadata: one(Metadata) = 1,
        spec: object(Spec) = 2,
    }

    struct Spec {
        cidrs: texts = 1,
    }
}

impl Kind for ServiceCidr {
    const NAME: &'static str = "ServiceCIDR";
    const PATH: &'static str = "/apis/networking.k8s.io/v1/servicecidrs";
    const OPTIONAL: bool = true;
    type Fields = ServiceCidrFields;

    fn from_fields(fields: ServiceCidrFields) -> Result<Self, InvalidName> {
        let mut metadata = fields.metadata.unwrap_or_default();
        let cidrs = fields.spec.unwrap_or_default().cidrs;
        Ok(Self {
            name: metadata.name(Self::NAME)?,
            cidrs: cidrs.into_iter().map(lossy).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn cidrs(value: Value) -> Vec<String> {
        let fields = serde_json::from_value(value).unwrap();
        ServiceCidr::from_fields(fields).unwrap().cidrs
    }

    #[test]
    fn the_networks_of_cluster_ips_as_the_api_writes_them() {
        let found = cidrs(json!({
            "metadata": {"name": "kubernetes"},
            "spec": {"cidrs": ["10.96.0.0/16", "fd00:96::/112"]},
            "status": {"conditions": [{"type": "Ready"}]},
        }));
        assert_eq!(found, ["10.96.0.0/16", "fd00:96::/112"]);
    }

    #[test]
    fn what_is_no_list_of_text_affects_nothing_else() {
        for (spec, expected) in [
            (json!(null), vec![]),
            (json!(7), vec![]),
            (json!({"cidrs": null}), vec![]),
            (json!({"cidrs": [5, "::/0"]}), vec!["5", "::/0"]),
        ] {
            assert_eq!(
                cidrs(json!({"metadata": {"name": "a"}, "spec": spec})),
                expected
            );
        }
    }
}
