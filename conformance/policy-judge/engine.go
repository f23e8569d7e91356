package main

import (
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/kube-network-policies/pkg/api"
	"sigs.k8s.io/kube-network-policies/pkg/networkpolicy"
	"sigs.k8s.io/kube-network-policies/pkg/podinfo"
	clusterpolicy "sigs.k8s.io/kube-network-policies/plugins/npa-v1alpha2"
	npav1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"
	npainformers "sigs.k8s.io/network-policy-api/pkg/client/informers/externalversions"
)

// engine is set up as by cmd/kube-network-policies/npa-v1alpha2 of kube-network-policies,
// over informers that are never started: they have no client, and hold the objects of the
// case from the beginning.
func (c *cluster) engine() (*networkpolicy.PolicyEngine, error) {
	factory := informers.NewSharedInformerFactory(nil, 0)
	namespaces := factory.Core().V1().Namespaces()
	nodes := factory.Core().V1().Nodes()
	pods := factory.Core().V1().Pods()
	policies := factory.Networking().V1().NetworkPolicies()
	clusterPolicies := npainformers.NewSharedInformerFactory(nil, 0).Policy().V1alpha2().ClusterNetworkPolicies()

	resolver, err := podinfo.NewInformerResolver(pods.Informer())
	if err != nil {
		return nil, err
	}
	for _, err := range []error{
		fill(namespaces.Informer(), c.Namespaces),
		fill(nodes.Informer(), c.Nodes),
		fill(pods.Informer(), c.Pods),
		fill(policies.Informer(), c.NetworkPolicies),
		fill(clusterPolicies.Informer(), c.ClusterNetworkPolicies),
	} {
		if err != nil {
			return nil, err
		}
	}
	provider := podinfo.NewInformerProvider(pods, namespaces, nodes, []podinfo.IPResolver{resolver})
	tier := func(tier npav1alpha2.Tier) api.PolicyEvaluator {
		return clusterpolicy.NewClusterNetworkPolicy(tier, clusterPolicies, nil, nodes.Lister())
	}
	// The name of the node decides only what is sent to the engine at all.
	standard := networkpolicy.NewStandardNetworkPolicy("", namespaces, pods, policies)
	return networkpolicy.NewPolicyEngine(provider, []api.PolicyEvaluator{
		tier(npav1alpha2.AdminTier),
		standard,
		tier(npav1alpha2.BaselineTier),
	}), nil
}

func fill[T any](informer cache.SharedIndexInformer, objects []T) error {
	for _, object := range objects {
		if err := informer.GetIndexer().Add(object); err != nil {
			return err
		}
	}
	return nil
}
