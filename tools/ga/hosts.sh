#!/usr/bin/env bash
# Two hosts made up on this machine, for measurements and tests between hosts where there is only one:
#
#   hosts.sh up            two network namespaces, longarm-a and longarm-b, joined by a pair of virtual interfaces
#   hosts.sh rails RATE    the same, joined by two pairs that carry RATE each (1gbit, say), both for Multipath TCP
#   hosts.sh down          takes them away again
#
# Their addresses are 198.51.100.1 and 198.51.100.2, of a block that is kept for documentation. tools/ga/at-host.sh runs a
# command on one of them. Needs root and iproute2.
set -euo pipefail

NAMES=(a b)

fail() {
    printf 'hosts: %s\n' "$*" >&2
    exit 1
}

# A second pair, in a network of its own, and as much traffic as RATE in each direction of both pairs. All connections of Multipath
# TCP that one of the hosts opens use its second address too.
second_rail() {
    local rate=$1 name number=1 interface
    ip link add lga2 netns longarm-a type veth peer name lgb2 netns longarm-b
    for name in "${NAMES[@]}"; do
        ip -n "longarm-$name" addr add "203.0.113.$number/24" dev "lg${name}2"
        ip -n "longarm-$name" link set "lg${name}2" up
        for interface in "lg$name" "lg${name}2"; do
            ip netns exec "longarm-$name" tc qdisc add dev "$interface" root tbf rate "$rate" burst 256k latency 20ms
        done
        ip -n "longarm-$name" mptcp endpoint add "203.0.113.$number" dev "lg${name}2" subflow
        number=$((number + 1))
    done
}

case ${1:-} in
up | rails)
    [ "$1" = up ] || [ $# -eq 2 ] || fail "how much does a rail carry? hosts.sh rails 1gbit, say"
    command -v ip >/dev/null || fail "there is no ip command (Debian: apt-get install iproute2)"
    for name in "${NAMES[@]}"; do
        ip netns add "longarm-$name" 2>/dev/null || fail "no network namespace can be made: that needs root, and that hosts.sh down was run"
    done
    # What was made of them is taken away again if the rest cannot be.
    trap '"$0" down' ERR
    ip link add lga netns longarm-a type veth peer name lgb netns longarm-b
    number=1
    for name in "${NAMES[@]}"; do
        ip -n "longarm-$name" link set lo up
        ip -n "longarm-$name" addr add "198.51.100.$number/24" dev "lg$name"
        ip -n "longarm-$name" link set "lg$name" up
        # As on a real host, something is the way to everywhere else.
        ip -n "longarm-$name" route add default via "198.51.100.$((3 - number))"
        # `ip netns exec` lays these over /etc: the hosts know each other, and ask no name server.
        mkdir -p "/etc/netns/longarm-$name"
        printf '127.0.0.1 localhost\n198.51.100.1 host-a\n198.51.100.2 host-b\n' >"/etc/netns/longarm-$name/hosts"
        : >"/etc/netns/longarm-$name/resolv.conf"
        number=$((number + 1))
    done
    [ "$1" = up ] || second_rail "$2"
    # An address counts for nothing until its host has made sure that nobody else has it.
    for name in "${NAMES[@]}"; do
        until [ -z "$(ip -n "longarm-$name" addr show tentative)" ]; do sleep 0.1; done
    done
    ;;
down)
    for name in "${NAMES[@]}"; do
        # One that was never made is no fault.
        ip netns del "longarm-$name" 2>/dev/null || true
        rm -rf "/etc/netns/longarm-$name"
    done
    ;;
*)
    printf 'hosts: usage: hosts.sh up|rails RATE|down\n' >&2
    exit 2
    ;;
esac
