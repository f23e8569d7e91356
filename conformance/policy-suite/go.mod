module tweed/conformance/policy-suite

go 1.26.0

require sigs.k8s.io/network-policy-api v0.2.0
