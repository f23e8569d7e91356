/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Which flows may skip the kernel's path: those whose packet has passed it just now, by
 * what connection tracking knows of them. */
#pragma once
#include "flow.h"
#include "packet.h"

/* Of the kernel, with the members that are read; the loader finds where these are. */
#define KERNEL __attribute__((preserve_access_index))

union nf_inet_addr {
	__u32 all[4];
};

union nf_conntrack_man_proto {
	__be16 all;
} KERNEL;

struct nf_conntrack_man {
	union nf_inet_addr u3;
	union nf_conntrack_man_proto u;
} KERNEL;

struct nf_conntrack_destination {
	union nf_inet_addr u3;
	__be16 port;
};

struct nf_conntrack_tuple {
	struct nf_conntrack_man src;
} KERNEL;

struct nf_conntrack_tuple_hash {
	struct nf_conntrack_tuple tuple;
} KERNEL;

struct nf_conntrack_zone {
	__u16 id;
} KERNEL;

struct ip_ct_tcp {
	__u8 state;
} KERNEL;

union nf_conntrack_proto {
	struct ip_ct_tcp tcp;
} KERNEL;

struct nf_conn {
	struct nf_conntrack_zone zone;
	struct nf_conntrack_tuple_hash tuplehash[2];
	unsigned long status;
	__u32 mark;
	union nf_conntrack_proto proto;
} KERNEL;

struct net_device {
	unsigned int mtu;
} KERNEL;

struct sk_buff {
	unsigned long _nfct;
	struct net_device *dev;
} KERNEL;

/* A tuple as include/net/netfilter/nf_conntrack_tuple.h lays it out, which is the same in
 * all kernels with tcx: IPv4 uses the first word of an address. */
struct tuple {
	__u32 source[4];
	__be16 source_port;
	__u16 family;
	__u32 destination[4];
	__be16 destination_port;
	__u8 protocol;
	__u8 direction;
};

/* enum ip_conntrack_info, in the lower bits of _nfct. */
enum { CT_ESTABLISHED = 0, CT_ESTABLISHED_REPLY = 3, CT_INFO = 7 };
/* enum ip_conntrack_status */
enum {
	CT_EXPECTED = 1 << 0,
	CT_SEEN_REPLY = 1 << 1,
	CT_ASSURED = 1 << 2,
	CT_CONFIRMED = 1 << 3,
	CT_SRC_NAT = 1 << 4,
	CT_SEQ_ADJUST = 1 << 6,
	CT_DYING = 1 << 9,
	CT_TEMPLATE = 1 << 11,
	CT_HELPER = 1 << 13,
};
#define CT_NEVER (CT_EXPECTED | CT_SEQ_ADJUST | CT_DYING | CT_TEMPLATE | CT_HELPER)
/* enum tcp_conntrack */
enum { CT_TCP_ESTABLISHED = 3 };

/* Where the packet goes to. */
enum { TO_POD, TO_VXLAN, TO_UNDERLAY };

static __always_inline void from_tuple(struct address *address, __u32 *words, int is_ipv6)
{
	if (is_ipv6)
		__builtin_memcpy(address, words, 16);
	else
		map_ipv4(address, words[0]);
}

/* Whether a packet goes the way back of a tuple. */
static __always_inline int is_turned(struct tuple *back, struct packet *packet)
{
	struct flow_key *key = &packet->key;
	int words = packet->is_ipv6 ? 4 : 1;
	__u32 *source = key->source.word, *destination = key->destination.word;
	if (packet->is_ipv6 &&
	    (source[0] != back->destination[0] || source[1] != back->destination[1] ||
	     source[2] != back->destination[2] || destination[0] != back->source[0] ||
	     destination[1] != back->source[1] || destination[2] != back->source[2]))
		return 0;
	return source[3] == back->destination[words - 1] && destination[3] == back->source[words - 1] &&
	       key->source_port == back->destination_port &&
	       key->destination_port == back->source_port;
}

/* Whether the flow of this entry may ever be admitted, by what conntrack knows of it. */
static __always_inline int is_admissible(struct nf_conn *entry, struct settings *settings,
					 __u32 protocol)
{
	unsigned long status = BPF_CORE_READ(entry, status);
	unsigned long needed = CT_CONFIRMED | CT_SEEN_REPLY;
	if (protocol == IPPROTO_TCP)
		needed |= CT_ASSURED;
	if ((status & needed) != needed || status & CT_NEVER) {
		count(REFUSED_STATE);
		return 0;
	}
	/* Masquerading is of the kernel's path alone. */
	if (status & CT_SRC_NAT) {
		count(REFUSED_SOURCE_NAT);
		return 0;
	}
	if (protocol == IPPROTO_TCP && BPF_CORE_READ(entry, proto.tcp.state) != CT_TCP_ESTABLISHED) {
		count(REFUSED_STATE);
		return 0;
	}
	if ((BPF_CORE_READ(entry, mark) & settings->mark_mask) != settings->mark) {
		count(REFUSED_GENERATION);
		return 0;
	}
	if (BPF_CORE_READ(entry, zone.id)) {
		count(REFUSED_OTHER);
		return 0;
	}
	return 1;
}

/* Where a route leads, without the neighbour (linux/bpf.h has it since 6.3). */
#define FIB_SKIP_NEIGHBOUR (1U << 2)
#define AF_INET 2
#define AF_INET6 10

/* The link by which the kernel sends to another node; 0 if it has no route. */
static __always_inline __u32 link_to(struct __sk_buff *skb, struct settings *settings, __be32 node)
{
	struct bpf_fib_lookup route = {
		.family = AF_INET,
		.l4_protocol = IPPROTO_UDP,
		.ifindex = skb->ifindex,
		.ipv4_src = settings->node,
		.ipv4_dst = node,
	};
	switch (bpf_fib_lookup(skb, &route, sizeof(route), FIB_SKIP_NEIGHBOUR)) {
	case BPF_FIB_LKUP_RET_SUCCESS:
		return route.ifindex;
	case BPF_FIB_LKUP_RET_FWD_DISABLED:
		/* Where pods have IPv6 alone, IPv4 is not forwarded, and no route told. */
		return settings->underlay_link;
	default:
		return 0;
	}
}

static __always_inline int is_mac(__u8 *one, __u8 *other)
{
	__u16 *words = (__u16 *)one, *others = (__u16 *)other;
	return words[0] == others[0] && words[1] == others[1] && words[2] == others[2];
}

/* Whether a packet that leaves by a plain route goes to the hop that bpf_redirect_neigh()
 * will find for its flow. A rule of others may have routed it by another one. */
static __always_inline int is_routed_alike(struct __sk_buff *skb, struct packet *packet,
					   struct flow *flow)
{
	struct bpf_fib_lookup route = {
		.family = packet->is_ipv6 ? AF_INET6 : AF_INET,
		.l4_protocol = packet->key.protocol,
		.ifindex = skb->ifindex,
	};
	if (packet->is_ipv6) {
		__builtin_memcpy(route.ipv6_src, &flow->source, 16);
		__builtin_memcpy(route.ipv6_dst, &flow->destination, 16);
	} else {
		route.ipv4_src = flow->source.word[3];
		route.ipv4_dst = flow->destination.word[3];
	}
	return bpf_fib_lookup(skb, &route, sizeof(route), BPF_FIB_LOOKUP_OUTPUT) ==
		       BPF_FIB_LKUP_RET_SUCCESS &&
	       is_mac(route.dmac, flow->destination_mac);
}

/* Says by which way the flow goes, and between which links. Not 0 if it is none of pods, or
 * rules of others route it. */
static __always_inline int find_way(struct __sk_buff *skb, struct settings *settings,
				    struct packet *packet, struct flow *flow, __u32 kind, int to)
{
	struct node_key other = { .prefix = 128 };
	struct node *node;
	if (to == TO_POD) {
		flow->link = skb->ifindex;
		if (kind == LINK_POD) {
			flow->way = WAY_LOCAL;
			return 0;
		}
		/* Its source as it arrived, before that of a Service is put back. */
		other.address = packet->key.source;
		node = bpf_map_lookup_elem(&nodes, &other);
		if (!node)
			return -1;
		flow->node = node->address;
		flow->way = kind == LINK_VXLAN ? WAY_VXLAN_IN : WAY_DIRECT_IN;
		/* A plain route and VXLAN exclude each other. */
		return (flow->way == WAY_VXLAN_IN) != (node->address != 0);
	}
	if (kind != LINK_POD)
		return -1;
	other.address = flow->destination;
	node = bpf_map_lookup_elem(&nodes, &other);
	if (!node || (to == TO_VXLAN) != (node->address != 0))
		return -1;
	flow->node = node->address;
	if (to == TO_VXLAN) {
		if (!is_mac(node->mac, flow->destination_mac))
			return -1;
		flow->way = WAY_VXLAN_OUT;
		flow->link = link_to(skb, settings, node->address);
		return flow->link == 0;
	}
	flow->way = WAY_DIRECT_OUT;
	flow->link = skb->ifindex;
	return node->link != flow->link || !is_routed_alike(skb, packet, flow);
}

static __always_inline void admit(struct __sk_buff *skb, int to)
{
	struct packet packet = {};
	__u32 arrived_by = skb->ingress_ifindex;
	struct sk_buff *kernel = (void *)skb;
	/* What this machine itself sends has no link by which it came. */
	if (!arrived_by)
		return;
	struct settings *settings = get_settings();
	if (!settings || !settings->ways)
		return;
	__u64 now = bpf_ktime_get_coarse_ns();
	if (now > settings->lease)
		return;
	/* Most of what never enters comes by a link of others, or goes to no pod. */
	__u32 *kind = bpf_map_lookup_elem(&links, &arrived_by);
	if (!kind || read_packet(skb, sizeof(struct ethhdr), arrived_by, settings, &packet) ||
	    packet.ends)
		return;
	unsigned long tracked = 0;
	bpf_probe_read_kernel(&tracked, sizeof(tracked),
			      (void *)skb + bpf_core_field_offset(kernel->_nfct));
	struct nf_conn *entry = (void *)(tracked & ~(unsigned long)CT_INFO);
	__u32 info = tracked & CT_INFO;
	if (!entry) {
		count(REFUSED_NO_CONNTRACK);
		return;
	}
	if (info != CT_ESTABLISHED && info != CT_ESTABLISHED_REPLY) {
		count(REFUSED_STATE);
		return;
	}
	/* A full barrier: all that follows is read after it. If the agent has written another
	 * epoch meanwhile, this entry is void. */
	__u64 epoch = __sync_fetch_and_add(&settings->epoch, 0);
	if (!is_admissible(entry, settings, packet.key.protocol))
		return;
	void *original = __builtin_preserve_access_index(&entry->tuplehash[0].tuple);
	void *reply = __builtin_preserve_access_index(&entry->tuplehash[1].tuple);
	int is_reply = info == CT_ESTABLISHED_REPLY;
	struct tuple tuple;
	/* What leaves is the other direction turned round, or somebody else has changed it. */
	bpf_probe_read_kernel(&tuple, sizeof(tuple), is_reply ? original : reply);
	if (!is_turned(&tuple, &packet)) {
		count(REFUSED_OTHER);
		return;
	}
	struct flow flow = {
		.epoch = epoch,
		.expires = now + settings->life,
		.source = packet.key.source,
		.destination = packet.key.destination,
		.source_port = packet.key.source_port,
		.destination_port = packet.key.destination_port,
	};
	/* From here on the key is as the packet arrived. */
	struct flow_key *key = &packet.key;
	bpf_probe_read_kernel(&tuple, sizeof(tuple), is_reply ? reply : original);
	from_tuple(&key->source, tuple.source, packet.is_ipv6);
	from_tuple(&key->destination, tuple.destination, packet.is_ipv6);
	key->source_port = tuple.source_port;
	key->destination_port = tuple.destination_port;
	struct ethhdr *ethernet = (void *)(long)skb->data;
	if ((void *)(ethernet + 1) > (void *)(long)skb->data_end)
		return;
	__builtin_memcpy(flow.destination_mac, ethernet->h_dest, ETH_ALEN);
	__builtin_memcpy(flow.source_mac, ethernet->h_source, ETH_ALEN);
	if (find_way(skb, settings, &packet, &flow, *kind, to)) {
		count(REFUSED_NOT_POD);
		return;
	}
	flow.translates = differ(&key->source, &flow.source) ||
			  differ(&key->destination, &flow.destination) ||
			  key->source_port != flow.source_port ||
			  key->destination_port != flow.destination_port;
	struct net_device *device = 0;
	bpf_probe_read_kernel(&device, sizeof(device),
			      (void *)skb + bpf_core_field_offset(kernel->dev));
	flow.mtu = BPF_CORE_READ(device, mtu);
	bpf_map_update_elem(&flows, key, &flow, BPF_ANY);
	count(ADMITTED);
}
