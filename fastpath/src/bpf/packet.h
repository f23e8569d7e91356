/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Packets: what a flow is, and what forwarding and VXLAN change of it, as the kernel does. */
#pragma once
#include "flow.h"

/* Outer IPv4, UDP and VXLAN headers, without the Ethernet header before them. */
struct outer {
	struct iphdr ip;
	struct udphdr udp;
	__be32 flags;
	__be32 vni;
};

#define OUTER_LENGTH (sizeof(struct outer) + sizeof(struct ethhdr))
/* The flag that says that there is an identifier, and no other (RFC 7348, 5). */
#define VXLAN_FLAGS bpf_htonl(0x08000000)
#define ECN 3
#define ECN_CE 3
#define ECN_ECT_0 2
/* More fragments, and the offset: all but "do not fragment". */
#define FRAGMENT bpf_htons(0x3fff)
#define IPV4_NO_OPTIONS 0x45
/* What comes out of the outer header is IPv6 (linux/bpf.h has it since 6.3). */
#define DECAP_L3_IPV6 (1ULL << 8)

struct packet {
	struct flow_key key;
	/* Of the IP header from the start of the packet, in bytes. */
	__u32 offset;
	/* Of the packet from its IP header on; of a segment, if it is several. */
	__u32 length;
	__u8 is_ipv6;
	/* SYN, FIN or RST. */
	__u8 ends;
	__u8 traffic_class;
};

/* Whether it is for this machine, and in no VLAN. */
static __always_inline int is_plain(struct __sk_buff *skb)
{
	return skb->pkt_type == 0 /* PACKET_HOST */ && !skb->vlan_present;
}

static __always_inline void map_ipv4(struct address *address, __be32 ip)
{
	address->word[2] = bpf_htonl(0xffff);
	address->word[3] = ip;
}

static __always_inline int is_in_range(struct settings *settings, struct address *address)
{
	__u32 *word = address->word;
	for (int at = 0; at < MAX_RANGES && at < settings->range_count; at++) {
		struct range *range = &settings->ranges[at];
		if ((word[3] & range->mask[3]) == range->network[3] &&
		    (word[2] & range->mask[2]) == range->network[2] &&
		    (word[1] & range->mask[1]) == range->network[1] &&
		    (word[0] & range->mask[0]) == range->network[0])
			return 1;
	}
	return 0;
}

/* Reads the packet whose Ethernet header ends at `offset`, as it came by `link`. Not 0 if it
 * is none of a flow that the fast path knows of. */
static __always_inline int read_packet(struct __sk_buff *skb, __u32 offset, __u32 link,
				       struct settings *settings, struct packet *packet)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct flow_key *key = &packet->key;
	struct ethhdr *ethernet = data + offset - sizeof(*ethernet);
	__u32 header;
	if ((void *)(ethernet + 1) > end)
		return -1;
	if (ethernet->h_proto == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = data + offset;
		if ((void *)(ip + 1) > end)
			return -1;
		map_ipv4(&key->destination, ip->daddr);
		if (!is_in_range(settings, &key->destination))
			return -1;
		if (*(__u8 *)ip != IPV4_NO_OPTIONS || ip->frag_off & FRAGMENT || ip->ttl < 2)
			return -1;
		map_ipv4(&key->source, ip->saddr);
		key->protocol = ip->protocol;
		packet->traffic_class = ip->tos;
		header = sizeof(*ip);
	} else if (ethernet->h_proto == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip = data + offset;
		if ((void *)(ip + 1) > end)
			return -1;
		__builtin_memcpy(&key->destination, &ip->daddr, 16);
		if (!is_in_range(settings, &key->destination))
			return -1;
		if (ip->version != 6 || ip->hop_limit < 2 || !ip->payload_len)
			return -1;
		__builtin_memcpy(&key->source, &ip->saddr, 16);
		key->protocol = ip->nexthdr;
		packet->traffic_class = ip->priority << 4 | ip->flow_lbl[0] >> 4;
		packet->is_ipv6 = 1;
		header = sizeof(*ip);
	} else {
		return -1;
	}
	__u32 size = skb->len - offset;
	if (key->protocol == IPPROTO_TCP) {
		struct tcphdr *tcp = data + offset + header;
		if ((void *)(tcp + 1) > end)
			return -1;
		key->source_port = tcp->source;
		key->destination_port = tcp->dest;
		packet->ends = tcp->syn | tcp->fin | tcp->rst;
		if (skb->gso_size)
			size = skb->gso_size + header + tcp->doff * 4;
	} else if (key->protocol == IPPROTO_UDP) {
		struct udphdr *udp = data + offset + header;
		if ((void *)(udp + 1) > end)
			return -1;
		key->source_port = udp->source;
		key->destination_port = udp->dest;
		if (skb->gso_size)
			size = skb->gso_size + header + sizeof(*udp);
	} else {
		return -1;
	}
	key->link = link;
	packet->offset = offset;
	packet->length = size;
	return 0;
}

/* One hop less, of the IP header at `offset`. */
static __always_inline int take_hop(struct __sk_buff *skb, __u32 offset, int is_ipv6)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	if (is_ipv6) {
		struct ipv6hdr *ip = data + offset;
		if ((void *)(ip + 1) > end)
			return -1;
		__u8 limit = ip->hop_limit - 1;
		/* IPv6 has no checksum that would make up for the change. */
		return bpf_skb_store_bytes(skb, offset + 7, &limit, 1, BPF_F_RECOMPUTE_CSUM);
	}
	struct iphdr *ip = data + offset;
	if ((void *)(ip + 1) > end)
		return -1;
	__u32 sum = ip->check + bpf_htons(0x0100);
	ip->check = sum + (sum >= 0xffff);
	ip->ttl--;
	return 0;
}

static __always_inline int set_link_layer(struct __sk_buff *skb, struct flow *flow, int is_ipv6)
{
	struct ethhdr *ethernet = (void *)(long)skb->data;
	if ((void *)(ethernet + 1) > (void *)(long)skb->data_end)
		return -1;
	__builtin_memcpy(ethernet->h_dest, flow->destination_mac, ETH_ALEN);
	__builtin_memcpy(ethernet->h_source, flow->source_mac, ETH_ALEN);
	ethernet->h_proto = is_ipv6 ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP);
	return 0;
}

static __always_inline int differ(struct address *one, struct address *other)
{
	return one->word[3] != other->word[3] || one->word[2] != other->word[2] ||
	       one->word[1] != other->word[1] || one->word[0] != other->word[0];
}

/* Writes another address into the IP header, and what follows from it into the checksums.
 * `at` is where the address is. */
static __always_inline void translate_address(struct __sk_buff *skb, struct packet *packet,
					      __u32 at, __u32 checksum, __u64 flags,
					      struct address *from, struct address *to)
{
	if (!differ(from, to))
		return;
	if (packet->is_ipv6) {
		__s64 sum = bpf_csum_diff(from->word, 16, to->word, 16, 0);
		bpf_l4_csum_replace(skb, checksum, 0, sum, BPF_F_PSEUDO_HDR | flags);
		bpf_skb_store_bytes(skb, at, to->word, 16, 0);
	} else {
		__u32 header = sizeof(struct ethhdr) + __builtin_offsetof(struct iphdr, check);
		bpf_l4_csum_replace(skb, checksum, from->word[3], to->word[3],
				    BPF_F_PSEUDO_HDR | flags | 4);
		bpf_l3_csum_replace(skb, header, from->word[3], to->word[3], 4);
		bpf_skb_store_bytes(skb, at, &to->word[3], 4, 0);
	}
}

/* Gives the packet the ends that a Service's translation gives its flow. The IP header
 * follows on the Ethernet header. */
static __always_inline void translate(struct __sk_buff *skb, struct packet *packet,
				      struct flow *flow)
{
	struct flow_key *key = &packet->key;
	struct flow to = *flow;
	int is_ipv6 = packet->is_ipv6, is_tcp = key->protocol == IPPROTO_TCP;
	__u32 header = sizeof(struct ethhdr);
	__u32 ports = header + (is_ipv6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr));
	__u32 checksum = ports + (is_tcp ? __builtin_offsetof(struct tcphdr, check)
					 : __builtin_offsetof(struct udphdr, check));
	__u64 flags = is_tcp ? 0 : BPF_F_MARK_MANGLED_0;
	__u32 source = is_ipv6 ? __builtin_offsetof(struct ipv6hdr, saddr)
			       : __builtin_offsetof(struct iphdr, saddr);
	__u32 length = is_ipv6 ? 16 : 4;
	translate_address(skb, packet, header + source, checksum, flags, &key->source, &to.source);
	translate_address(skb, packet, header + source + length, checksum, flags,
			  &key->destination, &to.destination);
	if (key->source_port != to.source_port) {
		bpf_l4_csum_replace(skb, checksum, key->source_port, to.source_port, flags | 2);
		bpf_skb_store_bytes(skb, ports, &to.source_port, 2, 0);
	}
	if (key->destination_port != to.destination_port) {
		bpf_l4_csum_replace(skb, checksum, key->destination_port, to.destination_port,
				    flags | 2);
		bpf_skb_store_bytes(skb, ports + 2, &to.destination_port, 2, 0);
	}
}

static __always_inline __u16 fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

/* The outer header as the kernel's VXLAN device makes it (drivers/net/vxlan). */
static __always_inline int encapsulate(struct __sk_buff *skb, struct packet *packet,
				       struct flow *flow, struct settings *settings)
{
	__be32 node = flow->node;
	struct ethhdr inner;
	__builtin_memcpy(inner.h_dest, flow->destination_mac, ETH_ALEN);
	__builtin_memcpy(inner.h_source, flow->source_mac, ETH_ALEN);
	inner.h_proto = packet->is_ipv6 ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP);
	/* udp_flow_src_port() */
	__u32 hash = bpf_get_hash_recalc(skb);
	hash ^= hash << 16;
	__u64 ports = settings->port_max - settings->port_min;
	__u16 port = (ports * hash >> 32) + settings->port_min;
	__u64 flags = BPF_F_ADJ_ROOM_ENCAP_L3_IPV4 | BPF_F_ADJ_ROOM_ENCAP_L4_UDP |
		      BPF_F_ADJ_ROOM_ENCAP_L2(sizeof(inner)) | BPF_F_ADJ_ROOM_ENCAP_L2_ETH |
		      BPF_F_ADJ_ROOM_FIXED_GSO;
	if (bpf_skb_adjust_room(skb, OUTER_LENGTH, BPF_ADJ_ROOM_MAC, flags))
		return -1;
	struct ethhdr *ethernet = (void *)(long)skb->data;
	struct outer *outer = (void *)(ethernet + 1);
	struct ethhdr *inside = (void *)(outer + 1);
	if ((void *)(inside + 1) > (void *)(long)skb->data_end)
		return -1;
	/* ip_tunnel_ecn_encap() with a type of service of 0. */
	__u8 ecn = packet->traffic_class & ECN;
	if (ecn == ECN_CE)
		ecn = ECN_ECT_0;
	__u32 length = skb->len - sizeof(*ethernet);
	ethernet->h_proto = bpf_htons(ETH_P_IP);
	__be16 first = bpf_htons(IPV4_NO_OPTIONS << 8 | ecn);
	*(__be16 *)&outer->ip = first;
	outer->ip.tot_len = bpf_htons(length);
	outer->ip.id = bpf_get_prandom_u32();
	outer->ip.frag_off = 0;
	outer->ip.ttl = 64;
	outer->ip.protocol = IPPROTO_UDP;
	outer->ip.saddr = settings->node;
	outer->ip.daddr = node;
	outer->ip.check = fold((__u64)first + outer->ip.tot_len + outer->ip.id +
			       bpf_htons(64 << 8 | IPPROTO_UDP) + outer->ip.saddr + node);
	outer->udp.source = bpf_htons(port);
	outer->udp.dest = settings->vxlan_port;
	outer->udp.len = bpf_htons(length - sizeof(struct iphdr));
	outer->udp.check = 0;
	outer->flags = VXLAN_FLAGS;
	outer->vni = settings->vni;
	*inside = inner;
	return 0;
}

/* Makes sure that what read_packet() looks at behind an outer header can be read. */
static __always_inline int pull(struct __sk_buff *skb, __u32 length)
{
	if ((void *)(long)skb->data + length <= (void *)(long)skb->data_end)
		return 0;
	return length > skb->len ? -1 : bpf_skb_pull_data(skb, length);
}

/* Whether it is a packet of VXLAN to this node. */
static __always_inline int is_vxlan(struct __sk_buff *skb, struct settings *settings)
{
	/* Ethernet, outer headers, inner Ethernet, and the least that an inner packet has. */
	if (pull(skb, sizeof(struct ethhdr) + OUTER_LENGTH + sizeof(struct iphdr) +
			      sizeof(struct udphdr)))
		return 0;
	struct ethhdr *ethernet = (void *)(long)skb->data;
	struct outer *outer = (void *)(ethernet + 1);
	if ((void *)(outer + 1) > (void *)(long)skb->data_end)
		return 0;
	return ethernet->h_proto == bpf_htons(ETH_P_IP) &&
	       *(__u8 *)&outer->ip == IPV4_NO_OPTIONS && outer->ip.protocol == IPPROTO_UDP &&
	       outer->udp.dest == settings->vxlan_port && outer->ip.daddr == settings->node;
}

/* Checks the outer header of a packet for which is_vxlan() holds. Not 0 if the kernel has to
 * do more with it than to take it off. */
static __always_inline int read_outer(struct __sk_buff *skb, struct settings *settings,
				      __be32 *source)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct outer *outer = data + sizeof(struct ethhdr);
	struct ethhdr *inside = (void *)(outer + 1);
	struct iphdr *ip = (void *)(inside + 1);
	if ((void *)(ip + 1) > end)
		return -1;
	if (outer->ip.frag_off & FRAGMENT || outer->udp.check || outer->flags != VXLAN_FLAGS ||
	    outer->vni != settings->vni)
		return -1;
	int is_ipv6 = inside->h_proto == bpf_htons(ETH_P_IPV6);
	__u8 inner = is_ipv6 ? ((__u8 *)ip)[1] >> 4 : ip->tos;
	__u8 expected = inner & ECN;
	if (expected == ECN_CE)
		expected = ECN_ECT_0;
	/* INET_ECN_decapsulate() changes the inner header for any other, or drops it. */
	if ((outer->ip.tos & ECN) != expected)
		return -1;
	*source = outer->ip.saddr;
	__u32 header = is_ipv6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);
	__u8 protocol = is_ipv6 ? ((__u8 *)ip)[6] : ip->protocol;
	header += protocol == IPPROTO_TCP ? sizeof(struct tcphdr) : sizeof(struct udphdr);
	return pull(skb, sizeof(struct ethhdr) + OUTER_LENGTH + header);
}

/* Takes the outer headers off. The Ethernet header stays, and is that of the outer one. */
static __always_inline int decapsulate(struct __sk_buff *skb, int is_ipv6)
{
	__u64 flags = BPF_F_ADJ_ROOM_FIXED_GSO;
	if (is_ipv6)
		flags |= DECAP_L3_IPV6;
	return bpf_skb_adjust_room(skb, -(__s32)OUTER_LENGTH, BPF_ADJ_ROOM_MAC, flags);
}
