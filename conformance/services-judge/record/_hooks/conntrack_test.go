package conntrack

import (
	"encoding/json"
	"net"
	"os"
	"sort"
	"testing"

	"github.com/vishvananda/netlink"
	"k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/proxy"
)

type endpoint struct {
	Endpoint string `json:"endpoint"`
	Serving  bool   `json:"serving"`
}

type port struct {
	Service         string     `json:"service"`
	Port            string     `json:"port"`
	Protocol        string     `json:"protocol"`
	ClusterIP       net.IP     `json:"clusterIP"`
	ExternalIPs     []net.IP   `json:"externalIPs"`
	LoadBalancerIPs []net.IP   `json:"loadBalancerIPs"`
	Number          int        `json:"number"`
	NodePort        int        `json:"nodePort"`
	Endpoints       []endpoint `json:"endpoints"`
}

// An entry of conntrack; an address that the test leaves out is empty.
type entry struct {
	Protocol        uint8  `json:"protocol"`
	Destination     net.IP `json:"destination"`
	DestinationPort uint16 `json:"destinationPort"`
	ReplySource     net.IP `json:"replySource"`
	ReplyPort       uint16 `json:"replyPort"`
	Deleted         bool   `json:"deleted"`
}

type record struct {
	Test    string  `json:"test"`
	Ports   []port  `json:"ports"`
	Entries []entry `json:"entries"`
}

type clean = func(Interface, v1.IPFamily, proxy.ServicePortMap, proxy.EndpointsMap)

func recorded(t *testing.T, upstream clean) clean {
	return func(ct Interface, family v1.IPFamily, services proxy.ServicePortMap, endpoints proxy.EndpointsMap) {
		said := record{Test: t.Name()}
		for name, service := range services {
			one := port{
				Service:         name.NamespacedName.String(),
				Port:            name.Port,
				Protocol:        string(service.Protocol()),
				ClusterIP:       service.ClusterIP(),
				ExternalIPs:     service.ExternalIPs(),
				LoadBalancerIPs: service.LoadBalancerVIPs(),
				Number:          service.Port(),
				NodePort:        service.NodePort(),
				Endpoints:       []endpoint{},
			}
			for _, known := range endpoints[name] {
				one.Endpoints = append(one.Endpoints, endpoint{known.String(), known.IsServing()})
			}
			said.Ports = append(said.Ports, one)
		}
		sort.Slice(said.Ports, func(a, b int) bool {
			return said.Ports[a].Service+said.Ports[a].Port < said.Ports[b].Service+said.Ports[b].Port
		})
		before, err := ct.ListEntries(ipFamilyMap[family])
		if err != nil {
			t.Fatal(err)
		}
		before = append([]*netlink.ConntrackFlow{}, before...)
		upstream(ct, family, services, endpoints)
		after, err := ct.ListEntries(ipFamilyMap[family])
		if err != nil {
			t.Fatal(err)
		}
		kept := map[*netlink.ConntrackFlow]bool{}
		for _, flow := range after {
			kept[flow] = true
		}
		for _, flow := range before {
			said.Entries = append(said.Entries, entry{
				Protocol:        flow.Forward.Protocol,
				Destination:     flow.Forward.DstIP,
				DestinationPort: flow.Forward.DstPort,
				ReplySource:     flow.Reverse.SrcIP,
				ReplyPort:       flow.Reverse.SrcPort,
				Deleted:         !kept[flow],
			})
		}
		write(t, said)
	}
}

// write appends a line to the record.
func write(t *testing.T, said any) {
	file, err := os.OpenFile(os.Getenv("RECORD"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := json.NewEncoder(file).Encode(said); err != nil {
		t.Fatal(err)
	}
}
