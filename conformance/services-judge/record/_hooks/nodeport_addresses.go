package util

import (
	"encoding/json"
	"net"
	"os"
	"sort"

	"k8s.io/api/core/v1"
)

type record struct {
	Family v1.IPFamily `json:"family"`
	// What the flag says.
	CIDRs []string `json:"cidrs"`
	// The addresses of the node.
	Addresses []string `json:"addresses"`
	// Those that have node ports.
	Chosen []string `json:"chosen"`
}

var given = map[*NodePortAddresses]record{}

func NewNodePortAddresses(family v1.IPFamily, cidrs []string) *NodePortAddresses {
	made := upstreamNewNodePortAddresses(family, cidrs)
	given[made] = record{Family: family, CIDRs: append([]string{}, cidrs...)}
	return made
}

func (npa *NodePortAddresses) GetNodeIPs(network NetworkInterfacer) ([]net.IP, error) {
	chosen, err := npa.upstreamGetNodeIPs(network)
	if err != nil {
		return chosen, err
	}
	said := given[npa]
	addresses, err := network.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	said.Addresses, said.Chosen = []string{}, []string{}
	for _, address := range addresses {
		if one, ok := address.(*net.IPNet); ok {
			said.Addresses = append(said.Addresses, one.IP.String())
		}
	}
	for _, ip := range chosen {
		said.Chosen = append(said.Chosen, ip.String())
	}
	sort.Strings(said.Chosen)
	file, err := os.OpenFile(os.Getenv("RECORD"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return chosen, json.NewEncoder(file).Encode(said)
}
