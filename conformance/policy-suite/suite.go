// Package suite pins the conformance suite of network-policy-api, whose tests
// conformance/setup.sh compiles.
package suite

import _ "sigs.k8s.io/network-policy-api/conformance"
