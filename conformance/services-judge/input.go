package main

import (
	"bytes"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// options are what kube-proxy would be started with.
type options struct {
	// nftables or iptables.
	Mode     string `json:"mode"`
	NodeName string `json:"nodeName"`
	// The addresses of the Node, one of each family.
	NodeIPs []string `json:"nodeIPs"`
	// --cluster-cidr, one of each family.
	ClusterCIDRs []string `json:"clusterCIDRs"`
	// --nodeport-addresses, already resolved: `primary` is not known here.
	NodePortAddresses []string `json:"nodePortAddresses"`
}

// change is a line of the input: objects that were added or changed, and those that were
// removed. Options are read from the first line only.
type change struct {
	Options        *options                     `json:"options"`
	Zone           string                       `json:"zone"`
	ServiceCIDRs   []string                     `json:"serviceCIDRs"`
	Services       []*corev1.Service            `json:"services"`
	EndpointSlices []*discoveryv1.EndpointSlice `json:"endpointSlices"`
	// By namespace/name.
	RemovedServices       []string `json:"removedServices"`
	RemovedEndpointSlices []string `json:"removedEndpointSlices"`
}

// parse reads a line. A field that it does not know is an error, because the change would
// not be the one that was meant.
func parse(line []byte) (*change, error) {
	var read change
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&read); err != nil {
		return nil, err
	}
	return &read, nil
}
