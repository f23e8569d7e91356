/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The maps, and what is in them. `layout.rs` has the same structures; a change of either is
 * a new `LAYOUT` there. All numbers of packets are in the byte order of the network. */
#pragma once
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* Verdict of a tcx program that has none (linux/pkt_cls.h has it since 6.6). */
#ifndef TCX_NEXT
#define TCX_NEXT -1
#endif

/* More than these are merged into larger ones. */
#define MAX_RANGES 8

/* An address; of IPv4 in IPv6's form ::ffff:a.b.c.d (RFC 4291, 2.5.5.2). */
struct address {
	__u32 word[4];
};

/* Which ways are on. */
enum { WAYS_LOCAL = 1, WAYS_VXLAN = 2, WAYS_DIRECT = 4 };

/* Destinations that flows may have: pods and Services. */
struct range {
	__u32 network[4];
	__u32 mask[4];
};

/* The agent writes it in shared memory. */
struct settings {
	/* An entry of another epoch is not used. Written last. */
	__u64 epoch;
	/* How long an entry is used, in nanoseconds. */
	__u64 life;
	/* Until then flows are let in, on CLOCK_MONOTONIC in nanoseconds: the agent writes it
	 * again and again. Nobody says what changes when it has gone. */
	__u64 lease;
	/* What these bits of the conntrack mark have to be: the generation of the policies.
	 * Without policies both are 0. */
	__u32 mark;
	__u32 mark_mask;
	__u32 ways;
	/* Network identifier as in the header: the upper 24 bits. */
	__be32 vni;
	/* This node's address in the outer header. */
	__be32 node;
	__u32 vxlan_link;
	/* Outer source ports, in host order: from the first to the one before the second. */
	__u32 port_min;
	__u32 port_max;
	__be16 vxlan_port;
	__u16 range_count;
	/* The only link to other nodes, where it is known that there is one. */
	__u32 underlay_link;
	struct range ranges[MAX_RANGES];
};

/* One direction of a flow as it arrives. */
struct flow_key {
	struct address source;
	struct address destination;
	__be16 source_port;
	__be16 destination_port;
	/* The link by which it comes: nobody else can send as this pod. */
	__u32 link;
	__u32 protocol;
};

enum { WAY_LOCAL = 1, WAY_VXLAN_OUT, WAY_VXLAN_IN, WAY_DIRECT_OUT, WAY_DIRECT_IN };

/* What becomes of it. */
struct flow {
	__u64 epoch;
	/* CLOCK_MONOTONIC, in nanoseconds. */
	__u64 expires;
	__u32 way;
	/* The link by which it leaves. */
	__u32 link;
	/* The other node: destination, or the only source, of the outer header. */
	__be32 node;
	/* Of the link, or the VXLAN device. */
	__u32 mtu;
	__u8 destination_mac[6];
	__u8 source_mac[6];
	/* What it is after the translation of a Service. */
	struct address source;
	struct address destination;
	__be16 source_port;
	__be16 destination_port;
	__u32 translates;
	__u32 unused;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct settings);
} settings SEC(".maps");

/* The agent sets the size. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct flow_key);
	__type(value, struct flow);
} flows SEC(".maps");

/* Pod CIDRs of other nodes. */
struct node_key {
	__u32 prefix;
	struct address address;
};

struct node {
	/* Its address in the outer header; 0 if a plain route leads to it. */
	__be32 address;
	/* The link of that route; 0 behind VXLAN. */
	__u32 link;
	/* Of its VXLAN device. */
	__u8 mac[6];
	__u8 unused[2];
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct node_key);
	__type(value, struct node);
} nodes SEC(".maps");

/* Links with programs, by index. */
enum { LINK_POD = 1, LINK_VXLAN, LINK_UNDERLAY };

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u32);
} links SEC(".maps");

/* Counters, by the index of the way, and after those by these. */
enum {
	KERNEL_UNKNOWN = 8,
	KERNEL_ENDS,
	KERNEL_EPOCH,
	KERNEL_EXPIRED,
	KERNEL_TOO_BIG,
	KERNEL_OUTER,
	ADMITTED = 16,
	REFUSED_NO_CONNTRACK,
	REFUSED_STATE,
	REFUSED_GENERATION,
	REFUSED_SOURCE_NAT,
	REFUSED_NOT_POD,
	REFUSED_OTHER,
	COUNTERS = 24,
};

struct counter {
	__u64 packets;
	__u64 bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTERS);
	__type(key, __u32);
	__type(value, struct counter);
} counters SEC(".maps");

static __always_inline struct settings *get_settings(void)
{
	__u32 first = 0;
	return bpf_map_lookup_elem(&settings, &first);
}

static __always_inline void count_packet(__u32 index, __u32 bytes)
{
	struct counter *counter = bpf_map_lookup_elem(&counters, &index);
	if (counter) {
		counter->packets++;
		counter->bytes += bytes;
	}
}

static __always_inline void count(__u32 index)
{
	count_packet(index, 0);
}
