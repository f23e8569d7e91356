package nftables

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	"sigs.k8s.io/knftables"
)

// objects are what a proxier was told of.
type objects struct {
	proxier  *Proxier
	services map[string]*v1.Service
	slices   map[string]*discovery.EndpointSlice
}

var told = map[*Proxier]*objects{}
var proxiers = map[*knftables.Fake]*Proxier{}

func of(proxier *Proxier) *objects {
	known := told[proxier]
	if known == nil {
		known = &objects{
			proxier:  proxier,
			services: map[string]*v1.Service{},
			slices:   map[string]*discovery.EndpointSlice{},
		}
		told[proxier] = known
	}
	return known
}

func NewFakeProxier(family v1.IPFamily) (*knftables.Fake, *Proxier) {
	nft, proxier := upstreamNewFakeProxier(family)
	proxiers[nft] = proxier
	return nft, proxier
}

func (proxier *Proxier) OnServiceUpdate(old, service *v1.Service) {
	if old != nil {
		delete(of(proxier).services, old.Namespace+"/"+old.Name)
	}
	if service != nil {
		of(proxier).services[service.Namespace+"/"+service.Name] = service
	}
	proxier.upstreamOnServiceUpdate(old, service)
}

func (proxier *Proxier) OnEndpointSliceAdd(slice *discovery.EndpointSlice) {
	of(proxier).slices[slice.Namespace+"/"+slice.Name] = slice
	proxier.upstreamOnEndpointSliceAdd(slice)
}

func (proxier *Proxier) OnEndpointSliceUpdate(old, slice *discovery.EndpointSlice) {
	of(proxier).slices[slice.Namespace+"/"+slice.Name] = slice
	proxier.upstreamOnEndpointSliceUpdate(old, slice)
}

func (proxier *Proxier) OnEndpointSliceDelete(slice *discovery.EndpointSlice) {
	delete(of(proxier).slices, slice.Namespace+"/"+slice.Name)
	proxier.upstreamOnEndpointSliceDelete(slice)
}

type row struct {
	Name        string   `json:"name"`
	Source      string   `json:"source"`
	Protocol    string   `json:"protocol"`
	Destination string   `json:"destination"`
	Port        int      `json:"port"`
	Outcome     string   `json:"outcome"`
	Endpoints   []string `json:"endpoints,omitempty"`
	Masquerade  bool     `json:"masquerade"`
}

type record struct {
	Test              string                     `json:"test"`
	NodeName          string                     `json:"nodeName"`
	NodeIP            string                     `json:"nodeIP"`
	NodeIPs           []string                   `json:"nodeIPs"`
	ClusterCIDR       string                     `json:"clusterCIDR"`
	ServiceCIDRs      string                     `json:"serviceCIDRs"`
	NodePortAddresses []string                   `json:"nodePortAddresses"`
	MasqueradeAll     bool                       `json:"masqueradeAll"`
	Services          []*v1.Service              `json:"services"`
	EndpointSlices    []*discovery.EndpointSlice `json:"endpointSlices"`
	Rows              []row                      `json:"rows"`
}

func runPacketFlowTests(t *testing.T, line string, nft *knftables.Fake, nodeIPs []string, testCases []packetFlowTest) {
	upstreamrunPacketFlowTests(t, line, nft, nodeIPs, testCases)
	proxier := proxiers[nft]
	if proxier == nil {
		// A test of the tracer, with rules of its own.
		return
	}
	said := record{
		Test:              t.Name(),
		NodeName:          proxier.nodeName,
		NodeIP:            proxier.nodeIP.String(),
		NodeIPs:           nodeIPs,
		ServiceCIDRs:      proxier.serviceCIDRs,
		NodePortAddresses: strings.Fields(strings.Trim(proxier.nodePortAddresses.String(), "[]")),
		MasqueradeAll:     proxier.masqueradeAll,
		Services:          sorted(of(proxier).services),
		EndpointSlices:    sorted(of(proxier).slices),
	}
	if proxier.localDetector.IsImplemented() {
		expression := proxier.localDetector.IfLocalNFT()
		said.ClusterCIDR = expression[len(expression)-1]
	}
	for _, test := range testCases {
		one := row{
			Name:        strings.ReplaceAll(test.name, " ", "_"),
			Source:      test.sourceIP,
			Protocol:    string(test.protocol),
			Destination: test.destIP,
			Port:        test.destPort,
			Outcome:     strings.ToLower(test.output),
			Masquerade:  test.masq,
		}
		if one.Protocol == "" {
			one.Protocol = "TCP"
		}
		switch test.output {
		case "":
			one.Outcome = "untouched"
		case "DROP", "REJECT":
		default:
			one.Outcome = "endpoints"
			one.Endpoints = strings.Split(test.output, ", ")
		}
		said.Rows = append(said.Rows, one)
	}
	write(t, said)
}

func sorted[T any](all map[string]T) []T {
	values := []T{}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		values = append(values, all[key])
	}
	return values
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
