package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/tools/events"
	utilsysctl "k8s.io/component-helpers/node/util/sysctl"
	kubeproxy "k8s.io/kubernetes/pkg/proxy"
	proxyconfig "k8s.io/kubernetes/pkg/proxy/apis/config"
	"k8s.io/kubernetes/pkg/proxy/healthcheck"
	"k8s.io/kubernetes/pkg/proxy/iptables"
	"k8s.io/kubernetes/pkg/proxy/metrics"
	"k8s.io/kubernetes/pkg/proxy/nftables"
	proxyutil "k8s.io/kubernetes/pkg/proxy/util"
	utiliptables "k8s.io/kubernetes/pkg/util/iptables"
	netutils "k8s.io/utils/net"
)

// The defaults of kube-proxy.
const (
	masqueradeBit = 14
	syncPeriod    = 30 * time.Second
	minSyncPeriod = time.Second
)

var families = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}

// proxy is kube-proxy's proxier, and the objects that it was told of.
type proxy struct {
	provider kubeproxy.Provider
	health   *healthcheck.ProxyHealthServer
	services map[string]*corev1.Service
	slices   map[string]*discoveryv1.EndpointSlice
	zone     string
}

// start makes the proxier as kube-proxy does. Its loop is not started: it writes only when
// it is told to, and then at once.
func start(ctx context.Context, options *options) (*proxy, error) {
	if options == nil {
		return nil, errors.New("the first line has no options")
	}
	detectors := make(map[corev1.IPFamily]proxyutil.LocalTrafficDetector)
	for _, family := range families {
		detectors[family] = proxyutil.NewNoOpLocalDetector()
	}
	for _, cidr := range options.ClusterCIDRs {
		detectors[familyOf(netutils.IsIPv4CIDRString(cidr))] = proxyutil.NewDetectLocalByCIDR(cidr)
	}
	ips := map[corev1.IPFamily]net.IP{
		corev1.IPv4Protocol: net.IPv4zero,
		corev1.IPv6Protocol: net.IPv6zero,
	}
	for _, text := range options.NodeIPs {
		ip := netutils.ParseIPSloppy(text)
		ips[familyOf(netutils.IsIPv4(ip))] = ip
	}
	// It does not listen: Run is never called.
	health := healthcheck.NewProxyHealthServer("127.0.0.1:0", time.Hour, nil)
	recorder := &events.FakeRecorder{}

	var provider kubeproxy.Provider
	var err error
	switch options.Mode {
	case "nftables":
		metrics.RegisterMetrics(proxyconfig.ProxyModeNFTables)
		provider, err = nftables.NewDualStackProxier(ctx, syncPeriod, minSyncPeriod, false,
			masqueradeBit, detectors, options.NodeName, ips, recorder, health,
			options.NodePortAddresses, false)
	case "iptables":
		metrics.RegisterMetrics(proxyconfig.ProxyModeIPTables)
		provider, err = iptables.NewDualStackProxier(ctx, utiliptables.NewBestEffort(),
			utilsysctl.New(), syncPeriod, minSyncPeriod, false, false, masqueradeBit, detectors,
			options.NodeName, ips, recorder, health, options.NodePortAddresses, false)
	default:
		return nil, fmt.Errorf("the mode %q is not known", options.Mode)
	}
	if err != nil {
		return nil, err
	}
	return &proxy{
		provider: provider,
		health:   health,
		services: make(map[string]*corev1.Service),
		slices:   make(map[string]*discoveryv1.EndpointSlice),
	}, nil
}

func familyOf(isIPv4 bool) corev1.IPFamily {
	if isIPv4 {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}

// change tells the proxier of a change, and writes to the kernel.
func (p *proxy) change(change *change) error {
	for _, name := range change.RemovedServices {
		if old := p.services[name]; old != nil {
			p.provider.OnServiceDelete(old)
			delete(p.services, name)
		}
	}
	for _, name := range change.RemovedEndpointSlices {
		if old := p.slices[name]; old != nil {
			p.provider.OnEndpointSliceDelete(old)
			delete(p.slices, name)
		}
	}
	for _, service := range change.Services {
		name := service.Namespace + "/" + service.Name
		if old := p.services[name]; old != nil {
			p.provider.OnServiceUpdate(old, service)
		} else {
			p.provider.OnServiceAdd(service)
		}
		p.services[name] = service
	}
	for _, slice := range change.EndpointSlices {
		name := slice.Namespace + "/" + slice.Name
		if old := p.slices[name]; old != nil {
			p.provider.OnEndpointSliceUpdate(old, slice)
		} else {
			p.provider.OnEndpointSliceAdd(slice)
		}
		p.slices[name] = slice
	}
	if change.Zone != p.zone {
		p.provider.OnTopologyChange(map[string]string{corev1.LabelTopologyZone: change.Zone})
		p.zone = change.Zone
	}
	if change.ServiceCIDRs != nil {
		p.provider.OnServiceCIDRsChanged(change.ServiceCIDRs)
	}
	return p.sync()
}

// sync writes to the kernel: a proxier does so before these two return.
func (p *proxy) sync() error {
	before := time.Now()
	p.provider.OnServiceSynced()
	p.provider.OnEndpointSlicesSynced()
	for family, health := range p.health.Health().Status {
		if !health.LastUpdated.After(before) {
			return fmt.Errorf("%s was not written", family)
		}
	}
	return nil
}
