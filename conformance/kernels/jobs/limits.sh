# Which limits of the kernel count what the agent makes for other nodes (docs/proof/scale.md):
# more entries than each limit allows are made, and the kernel must take them, or refuse
# them where the last column says so.
set -u
nodes=${NODES:-5000}
lines=/tmp/lines
failed=0

# check WHAT EXPECTED FOUND
check() {
    local verdict=ok
    if [ "$2" != "$3" ]; then
        verdict="NOT AS EXPECTED ($2)"
        failed=1
    fi
    printf '%-64s %6s %s\n' "$1" "$3" "$verdict"
}

# each FORMAT: a line for each node. $a.$b are two bytes of its number, $m its MAC, and $x
# the number as hex digits.
each() {
    local i a b m x
    for ((i = 1; i <= nodes; i++)); do
        a=$((i / 250)) b=$((i % 250))
        printf -v x '%x' "$i"
        printf -v m '02:74:00:00:%02x:%02x' "$a" "$b"
        eval "echo \"$1\""
    done >$lines
}

printf 'Linux %s, %s nodes\n' "$(uname -r)" "$nodes"
for key in net.ipv4.neigh.default.gc_thresh3 net.ipv6.neigh.default.gc_thresh3 net.ipv6.route.max_size net.ipv6.route.gc_thresh; do
    printf '%s = %s\n' "$key" "$(sysctl -n "$key")"
done
modprobe vxlan
modprobe veth
ip link set lo up
ip link add tweed.1 type vxlan id 1 dstport 8472 nolearning local 192.0.2.1
ip addr add 10.250.0.0/32 dev tweed.1
ip -6 addr add fd01::/128 dev tweed.1 nodad
ip link set tweed.1 up

each 'neigh replace 10.$a.$b.0 lladdr $m nud permanent dev tweed.1'
ip -force -batch $lines
check 'permanent IPv4 neighbours' "$nodes" "$(ip -4 neigh show dev tweed.1 | wc -l)"
each 'neigh replace fd00:$x:: lladdr $m nud permanent dev tweed.1'
ip -force -batch $lines
check 'permanent IPv6 neighbours' "$nodes" "$(ip -6 neigh show dev tweed.1 | wc -l)"

# Beside them there is still room for neighbours that are learnt.
ip link add va type veth peer name vb
ip link set va up
ip link set vb up
ip addr add 172.16.0.1/16 dev va
limit=$(sysctl -n net.ipv4.neigh.default.gc_thresh3)
nodes=900 each 'neigh replace 172.16.$((a + 1)).$b lladdr 02:00:00:00:00:01 nud reachable dev va'
ip -force -batch $lines
check "learnt IPv4 neighbours beside them (gc_thresh3 is $limit)" 900 "$(ip -4 neigh show dev va | wc -l)"
ip link del va

each 'fdb add $m dev tweed.1 dst 198.18.$a.$b self permanent'
bridge -force -batch $lines
check 'FDB entries' "$nodes" "$(bridge fdb show dev tweed.1 | wc -l)"
ip link add limited type vxlan id 2 dstport 8473 nolearning maxaddress 10
for ((i = 1; i <= 20; i++)); do
    bridge fdb add "02:00:00:00:00:$i" dev limited dst "198.18.0.$i" self permanent 2>/dev/null
done
check 'permanent FDB entries of 20 with maxaddress 10 (refused)' 10 "$(bridge fdb show dev limited | wc -l)"
ip link del limited

each 'route add 10.$a.$b.0/24 via 10.$a.$b.0 dev tweed.1 onlink proto 116'
ip -force -batch $lines
check 'IPv4 routes' "$nodes" "$(ip -4 route show proto 116 | wc -l)"
each 'route add fd00:$x::/64 via fd00:$x:: dev tweed.1 onlink proto 116'
ip -6 -force -batch $lines
check 'IPv6 routes' "$nodes" "$(ip -6 route show proto 116 | wc -l)"
# A packet to each makes the kernel keep what it looked up.
each 'route get fd00:$x::1'
ip -6 -force -batch $lines >/tmp/found 2>&1
check 'IPv6 destinations looked up' "$nodes" "$(grep -c 'dev tweed.1' /tmp/found)"

{
    printf 'table inet t {\nset s {\ntype ipv4_addr\nflags interval\nelements = {\n'
    each '10.$a.$b.0/24,'
    cat $lines
    printf '}\n}\nset t {\ntype ipv4_addr . ether_addr\nelements = {\n'
    each '198.18.$a.$b . $m,'
    cat $lines
    printf '}\n}\n}\n'
} >/tmp/ruleset
nft -f /tmp/ruleset
check 'elements of an interval set without a size' "$nodes" "$(nft list set inet t s | grep -o '/24' | wc -l)"
check 'elements of a set of pairs without a size' "$nodes" "$(nft list set inet t t | grep -o '198.18' | wc -l)"
exit $failed
