package proxy

import (
	"encoding/json"
	"os"
	"testing"

	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"
)

type endpoint struct {
	Endpoint    string   `json:"endpoint"`
	Local       bool     `json:"local"`
	Ready       bool     `json:"ready"`
	Serving     bool     `json:"serving"`
	Terminating bool     `json:"terminating"`
	ZoneHints   []string `json:"zoneHints,omitempty"`
	NodeHints   []string `json:"nodeHints,omitempty"`
}

type record struct {
	Test string `json:"test"`
	// Whether the feature PreferSameTrafficDistribution is on.
	PreferSame    bool       `json:"preferSame"`
	NodeName      string     `json:"nodeName"`
	Zone          string     `json:"zone"`
	InternalLocal bool       `json:"internalLocal"`
	ExternalLocal bool       `json:"externalLocal"`
	NodePort      int        `json:"nodePort"`
	Endpoints     []endpoint `json:"endpoints"`
	// Which policies the Service uses at all, and the endpoints of each.
	UsesCluster bool     `json:"usesCluster"`
	UsesLocal   bool     `json:"usesLocal"`
	Cluster     []string `json:"cluster"`
	LocalOnes   []string `json:"localOnes"`
	// Whether there is a usable endpoint anywhere.
	Any bool `json:"any"`
}

type categorize = func([]Endpoint, ServicePort, string, map[string]string) ([]Endpoint, []Endpoint, []Endpoint, bool)

func recorded(t *testing.T, upstream categorize) categorize {
	return func(endpoints []Endpoint, service ServicePort, node string, labels map[string]string) ([]Endpoint, []Endpoint, []Endpoint, bool) {
		cluster, local, all, some := upstream(endpoints, service, node, labels)
		said := record{
			Test:          t.Name(),
			PreferSame:    utilfeature.DefaultFeatureGate.Enabled(features.PreferSameTrafficDistribution),
			NodeName:      node,
			Zone:          labels[v1.LabelTopologyZone],
			InternalLocal: service.InternalPolicyLocal(),
			ExternalLocal: service.ExternalPolicyLocal(),
			NodePort:      service.NodePort(),
			Endpoints:     []endpoint{},
			UsesCluster:   service.UsesClusterEndpoints(),
			UsesLocal:     service.UsesLocalEndpoints(),
			Cluster:       names(cluster),
			LocalOnes:     names(local),
			Any:           some,
		}
		for _, one := range endpoints {
			said.Endpoints = append(said.Endpoints, endpoint{
				Endpoint:    one.String(),
				Local:       one.IsLocal(),
				Ready:       one.IsReady(),
				Serving:     one.IsServing(),
				Terminating: one.IsTerminating(),
				ZoneHints:   sets.List(one.ZoneHints()),
				NodeHints:   sets.List(one.NodeHints()),
			})
		}
		write(t, said)
		return cluster, local, all, some
	}
}

func names(endpoints []Endpoint) []string {
	texts := []string{}
	for _, one := range endpoints {
		texts = append(texts, one.String())
	}
	return texts
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
