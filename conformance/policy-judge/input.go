package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/kube-network-policies/pkg/network"
	npav1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"
)

// cluster holds the objects of a case.
type cluster struct {
	Namespaces             []*corev1.Namespace                 `json:"namespaces"`
	Nodes                  []*corev1.Node                      `json:"nodes"`
	Pods                   []*corev1.Pod                       `json:"pods"`
	NetworkPolicies        []*networkingv1.NetworkPolicy       `json:"networkPolicies"`
	ClusterNetworkPolicies []*npav1alpha2.ClusterNetworkPolicy `json:"clusterNetworkPolicies"`
}

// packet is the first packet of a flow.
type packet struct {
	Source      string `json:"source"`
	Destination string `json:"destination"`
	// TCP, UDP, SCTP, or empty for every other protocol.
	Protocol corev1.Protocol `json:"protocol"`
	Port     int             `json:"port"`
}

// sourcePort is the same for all packets: no policy can name it.
const sourcePort = 40000

// parse reads a case. A field that it does not know is an error, because the case would
// not be the one that was meant.
func parse(line []byte) (*cluster, []network.Packet, error) {
	var input struct {
		cluster
		Packets []packet `json:"packets"`
	}
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&input); err != nil {
		return nil, nil, err
	}
	for index, policy := range input.NetworkPolicies {
		stored, err := store(policy)
		if err != nil {
			return nil, nil, err
		}
		input.NetworkPolicies[index] = stored
	}
	packets := make([]network.Packet, len(input.Packets))
	for index, one := range input.Packets {
		parsed, err := one.parse()
		if err != nil {
			return nil, nil, err
		}
		packets[index] = parsed
	}
	return &input.cluster, packets, nil
}

func (p packet) parse() (network.Packet, error) {
	source, destination := net.ParseIP(p.Source), net.ParseIP(p.Destination)
	if source == nil || destination == nil {
		return network.Packet{}, fmt.Errorf("%q or %q is no address", p.Source, p.Destination)
	}
	family := corev1.IPv6Protocol
	if source.To4() != nil {
		family = corev1.IPv4Protocol
	}
	return network.Packet{
		Family:  family,
		SrcIP:   source,
		DstIP:   destination,
		Proto:   p.Protocol,
		SrcPort: sourcePort,
		DstPort: p.Port,
	}, nil
}

// store does what the API server does before a watch shows a NetworkPolicy: it fills in
// defaults, and encodes it as protobuf, which has no empty lists.
func store(policy *networkingv1.NetworkPolicy) (*networkingv1.NetworkPolicy, error) {
	if len(policy.Spec.PolicyTypes) == 0 {
		policy.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		if len(policy.Spec.Egress) != 0 {
			policy.Spec.PolicyTypes = append(policy.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
		}
	}
	for _, rule := range policy.Spec.Ingress {
		setProtocols(rule.Ports)
	}
	for _, rule := range policy.Spec.Egress {
		setProtocols(rule.Ports)
	}
	encoded, err := policy.Marshal()
	if err != nil {
		return nil, err
	}
	stored := &networkingv1.NetworkPolicy{}
	return stored, stored.Unmarshal(encoded)
}

func setProtocols(ports []networkingv1.NetworkPolicyPort) {
	for index := range ports {
		if ports[index].Protocol == nil {
			tcp := corev1.ProtocolTCP
			ports[index].Protocol = &tcp
		}
	}
}
