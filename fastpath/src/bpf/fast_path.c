// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The kernel lets only programs of a GPL compatible license read its memory.
//
// The programs of the fast path. How a packet goes through: `pod_in` and `nic_in` look up
// its flow as it arrives and send it on by what the map says, or leave it to the kernel.
// `pod_out`, `vxlan_out` and `nic_out` see what the kernel's own path has let pass, and put
// the flow into the map if it may skip that path from now on.
//
// A program either changes nothing and leaves the packet to the kernel, or does all that the
// kernel would have done.
#include "flow.h"
#include "packet.h"
#include "admit.h"

/* The entry by which a packet may skip the kernel's path; none if it may not. */
static __always_inline struct flow *lookup(struct settings *settings, struct packet *packet)
{
	struct flow *flow = bpf_map_lookup_elem(&flows, &packet->key);
	if (!flow) {
		count(KERNEL_UNKNOWN);
		return 0;
	}
	if (packet->ends) {
		count(KERNEL_ENDS);
		bpf_map_delete_elem(&flows, &packet->key);
		return 0;
	}
	if (flow->epoch != settings->epoch) {
		count(KERNEL_EPOCH);
		return 0;
	}
	if (bpf_ktime_get_coarse_ns() > flow->expires) {
		count(KERNEL_EXPIRED);
		return 0;
	}
	return flow;
}

/* Puts a packet of an admitted flow into the pod behind the link of its entry. The packet
 * begins with an Ethernet header and is as its key says. */
static __always_inline int deliver(struct __sk_buff *skb, struct packet *packet, struct flow *flow,
				   __u32 way)
{
	__u32 link = flow->link;
	if (set_link_layer(skb, flow, packet->is_ipv6))
		return TC_ACT_SHOT;
	count_packet(way, skb->len);
	if (flow->translates)
		translate(skb, packet, flow);
	return bpf_redirect_peer(link, 0);
}

/* From a pod: ingress of the node's end of its link. */
SEC("classifier") int pod_in(struct __sk_buff *skb)
{
	struct packet packet = {};
	struct settings *settings = get_settings();
	if (!settings || !settings->ways || !is_plain(skb))
		return TCX_NEXT;
	if (read_packet(skb, sizeof(struct ethhdr), skb->ifindex, settings, &packet))
		return TCX_NEXT;
	struct flow *flow = lookup(settings, &packet);
	if (!flow)
		return TCX_NEXT;
	if (packet.length > flow->mtu) {
		count(KERNEL_TOO_BIG);
		return TCX_NEXT;
	}
	switch (flow->way) {
	case WAY_LOCAL:
		if (take_hop(skb, sizeof(struct ethhdr), packet.is_ipv6))
			return TC_ACT_SHOT;
		return deliver(skb, &packet, flow, WAY_LOCAL);
	case WAY_DIRECT_OUT: {
		__u32 link = flow->link;
		if (take_hop(skb, sizeof(struct ethhdr), packet.is_ipv6))
			return TC_ACT_SHOT;
		count_packet(WAY_DIRECT_OUT, skb->len);
		if (flow->translates)
			translate(skb, &packet, flow);
		return bpf_redirect_neigh(link, 0, 0, 0);
	}
	case WAY_VXLAN_OUT: {
		__u32 link = flow->link;
		if (take_hop(skb, sizeof(struct ethhdr), packet.is_ipv6))
			return TC_ACT_SHOT;
		count_packet(WAY_VXLAN_OUT, skb->len);
		if (flow->translates)
			translate(skb, &packet, flow);
		if (encapsulate(skb, &packet, flow, settings))
			return TC_ACT_SHOT;
		return bpf_redirect_neigh(link, 0, 0, 0);
	}
	default:
		return TCX_NEXT;
	}
}

/* A packet of VXLAN that is for this node: whether it was delivered is in `verdict`. */
static __always_inline int from_vxlan(struct __sk_buff *skb, struct settings *settings)
{
	struct packet packet = {};
	__be32 outer_source;
	if (read_outer(skb, settings, &outer_source))
		return TCX_NEXT;
	if (read_packet(skb, OUTER_LENGTH + sizeof(struct ethhdr), settings->vxlan_link, settings,
			&packet))
		return TCX_NEXT;
	struct flow *flow = lookup(settings, &packet);
	if (!flow)
		return TCX_NEXT;
	if (flow->way != WAY_VXLAN_IN || flow->node != outer_source) {
		count(KERNEL_OUTER);
		return TCX_NEXT;
	}
	/* Several datagrams as one: the pod's kernel would take them apart by an outer header,
	 * as bpf_skb_adjust_room() leaves it said that there is one. */
	if (skb->gso_size && packet.key.protocol == IPPROTO_UDP) {
		count(KERNEL_OUTER);
		return TCX_NEXT;
	}
	if (packet.length > flow->mtu) {
		count(KERNEL_TOO_BIG);
		return TCX_NEXT;
	}
	if (decapsulate(skb, packet.is_ipv6) ||
	    take_hop(skb, sizeof(struct ethhdr), packet.is_ipv6))
		return TC_ACT_SHOT;
	return deliver(skb, &packet, flow, WAY_VXLAN_IN);
}

/* From other machines: ingress of a link of the underlay. */
SEC("classifier") int nic_in(struct __sk_buff *skb)
{
	struct settings *settings = get_settings();
	if (!settings || !settings->ways || !is_plain(skb))
		return TCX_NEXT;
	if (settings->ways & WAYS_VXLAN && is_vxlan(skb, settings))
		return from_vxlan(skb, settings);
	if (!(settings->ways & WAYS_DIRECT))
		return TCX_NEXT;
	struct packet packet = {};
	if (read_packet(skb, sizeof(struct ethhdr), skb->ifindex, settings, &packet))
		return TCX_NEXT;
	struct flow *flow = lookup(settings, &packet);
	if (!flow || flow->way != WAY_DIRECT_IN)
		return TCX_NEXT;
	if (packet.length > flow->mtu) {
		count(KERNEL_TOO_BIG);
		return TCX_NEXT;
	}
	if (take_hop(skb, sizeof(struct ethhdr), packet.is_ipv6))
		return TC_ACT_SHOT;
	return deliver(skb, &packet, flow, WAY_DIRECT_IN);
}

/* To a pod of this node: egress of the node's end of its link. */
SEC("classifier") int pod_out(struct __sk_buff *skb)
{
	admit(skb, TO_POD);
	return TCX_NEXT;
}

/* To a pod behind VXLAN: egress of the device, before the outer header. */
SEC("classifier") int vxlan_out(struct __sk_buff *skb)
{
	admit(skb, TO_VXLAN);
	return TCX_NEXT;
}

/* To a pod by a plain route: egress of a link of the underlay. */
SEC("classifier") int nic_out(struct __sk_buff *skb)
{
	admit(skb, TO_UNDERLAY);
	return TCX_NEXT;
}

char _license[] SEC("license") = "Dual MIT/GPL";
