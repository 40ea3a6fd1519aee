#!/usr/bin/env bash
# One part of what tools/verbs/test.sh runs, inside of the virtual machine: part.sh PART PROGRAMS
#
# PROGRAMS is the folder where the compiled programs are. The last line says how much went over RDMA and how much over TCP;
# a part that was to use RDMA and has not fails.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1

part=$1
programs=$2
longarm=$programs/longarm
# Half of the nodes use each device, so that what they say to each other crosses the wire.
export LONGARM_NETMOD=verbs LONGARM_VERBS_DEVICE=rxe0,rxe1
# What the job of that name is to find: words that devices update.
export LONGARM_TEST_DEVICE_WORDS=yes
# An emulated machine is slow, and what stands still in it for a while is not dead yet.
export LONGARM_SILENCE_MS=20000 LONGARM_WATCHDOG_S=0 LONGARM_CONNECT_TIMEOUT_S=60
failed=0

say() { printf 'verbs: %s\n' "$*"; }

# Runs a command that has to succeed.
check() {
    say "$*"
    "$@" && return
    say "FAILED (status $?): $*"
    failed=1
}

# Runs those tests of a program whose names match: a regular expression, then options of the program. None is a failure.
tests() {
    local program=$1 pattern=$2 name names=()
    shift 2
    mapfile -t names < <("$programs/$program" --list "$@" | sed -n "s/: test\$//p" | grep -E "^$pattern")
    if [ ${#names[@]} -eq 0 ]; then
        say "FAILED: $program has no test $pattern"
        failed=1
    fi
    for name in "${names[@]}"; do
        check "$programs/$program" "$@" --exact "$name"
    done
}

# Runs jobs on one layout: the beginnings of their names suffice.
jobs() {
    local layout=$1 name
    shift
    for name in "$@"; do
        tests jobs "$name.*\($layout\)\$"
    done
}

# Runs a random program: its seed, ranks, nodes and operations.
random() {
    LONGARM_TEST_SEED=$1 tests differential "seed_$1_on_$2_ranks_and_$3_nodes" --ops "$4"
}

# One of the C programs, which says at its end that all was well: its folder, its name, options of the job, and behind -- what it is
# told.
c_program() {
    local folder=$1 name=$2 options=() said
    shift 2
    say "$name: $*"
    while [ $# -gt 0 ] && [ "$1" != -- ]; do
        options+=("$1")
        shift
    done
    said=$("$longarm" run "${options[@]}" --timeout 240 -- "$programs/$folder/$name" "${@:2}" 2>&1)
    grep -qx "ok $name" <<<"$said" && return
    printf '%s\n' "$said"
    say "FAILED: $name: ${options[*]}"
    failed=1
}

# Packets that the devices have sent, and segments of TCP.
packets() {
    cat /sys/class/infiniband/*/ports/*/hw_counters/sent_pkts 2>/dev/null | awk '{ sum += $1 } END { print sum + 0 }'
}
segments() {
    awk '/^Tcp:/ { line++; if (line == 1) { for (i = 2; i <= NF; i++) if ($i == "OutSegs") at = i } else print $at }' /proc/net/snmp
}

# What the wire between the devices does to packets, both ways.
wire() {
    local interface
    for interface in rn0 rn1; do
        tc qdisc replace dev "$interface" root netem "$@" || failed=1
    done
}

# Programs of Global Arrays, and of the classic ARMCI, that end within seconds on an emulated machine too.
GA_PROGRAMS=testc,test,ntestc,ntestfc,lock,jacobi,ga_lu,ga_shift,getmem,mtest,ndim,nb2test,patch,scan,sparse,simple_groups,gemmtest
CLASSIC_PROGRAMS=msgcheck,simplelock,gpctest,testing/testnotify,lu-block,lu_nb_get,non-blocking/simple

# What is run over a wire that does something.
on_a_bad_wire() {
    check "$programs/crate-conformance" two_devices_conform
    jobs "2 x 2" lengths_around operations_of_a_rank messages_of_a_source "$@"
    random 7 4 2 1500
}

packets_before=$(packets)
segments_before=$(segments)
uses_rdma=yes
case $part in
crate)
    # Where answers to rxe0 leave.
    export LONGARM_TEST_RDMA_WIRE=rn1
    for program in "$programs"/crate-*; do
        check "$program" --test-threads 1
    done
    ;;
jobs)
    # What takes several GiB, or touches no network, is left to the other networks.
    jobs "2 x 2" words_are_put threads_of_a_rank memory_outside_windows windows_come_and_go the_heap_gives \
        a_freed_window many_handles lengths_around shapes_of_megabytes operations_of_a_rank what_is_quiet \
        a_barrier_completes who_sees_a_signal rmws_and_accumulates rmws_of_all_ranks integers_are_accumulated \
        accumulates_of_all_ranks one_rank_at_a_time messages_of_every_size messages_are_replied_to \
        a_rank_that_computes a_rank_that_looks bytes_at_any_offset the_last_element parts_differ \
        windows_belong_to collectives_of_every_size words_of_devices
    say "node 1 has no device, and all ranks hear of it"
    LONGARM_NETMOD=auto LONGARM_INTERFACE=10.77.0.1 LONGARM_VERBS_DEVICE=rxe0,rxe9 LONGARM_TEST_DEVICE_WORDS=1 \
        jobs "2 x 2" words_of_devices
    ;;
layouts)
    jobs "4 x 1" each_rmw who_sees_a_signal one_rank_at_a_time what_is_quiet messages_of_a_source windows_come_and_go \
        threads_of_a_rank words_are_put words_of_devices
    jobs "5 over 3" operations_of_a_rank bytes_at_any_offset the_last_element a_freed_window messages_of_every_size \
        collectives_of_every_size words_of_devices
    ;;
differential)
    for seed in 1 2 3; do
        random "$seed" 4 2 4000
        random "$seed" 4 4 4000
    done
    ;;
faults)
    # Before the launcher ends a job for a death, an emulated rank has to be able to say what it saw.
    export LONGARM_REPORT_MS=10000
    for name in rank_2_of_4_on_2_nodes_killed_and_all_collectives rank_2_of_4_on_2_nodes_killed_and_all_transfers \
        rank_3_of_4_on_2_nodes_killed_and_all_transfers rank_3_of_4_on_2_nodes_panics_and_all_collectives \
        rank_1_of_4_on_2_nodes_exits_and_all_transfers rank_1_of_4_on_4_nodes_killed_and_all_collectives \
        mutexes_that_rank_1_of_4_on_2_nodes_held mutexes_that_rank_1_of_4_on_4_nodes_held \
        rank_3_of_4_on_2_nodes_killed_and_the_others rank_0_of_4_on_2_nodes_killed_and_the_others \
        rank_5_and_2_of_6_on_3_nodes_killed_and_the_others without_our_launcher_all_of_a_node_notice \
        strangers_with_garbage strangers_that_say_nothing wrong_arguments; do
        tests faults "$name"
    done
    ;;
loss)
    wire loss 1%
    on_a_bad_wire words_are_put integers_are_accumulated words_of_devices
    random 8 4 4 1500
    ;;
delay)
    # Without a rate a packet that is delayed less would overtake others.
    wire delay 2ms 1ms rate 1gbit
    on_a_bad_wire
    ;;
reorder)
    wire delay 1ms reorder 98% 50%
    on_a_bad_wire
    ;;
corruption)
    wire corrupt 0.5% duplicate 1%
    on_a_bad_wire
    ;;
port)
    # What is on its way then is lost, and the devices try again for a while.
    while :; do
        sleep 5
        tools/rdma-vm/port rn0 down
        sleep 1
        tools/rdma-vm/port rn0 up
    done &
    shaker=$!
    on_a_bad_wire
    kill "$shaker"
    tools/rdma-vm/port rn0 up
    ;;
hosts | ga)
    at_host=$PWD/tools/ga/at-host.sh
    hosts=(--hosts 198.51.100.1,198.51.100.2 --agent "$at_host" --limit-seconds 180)
    # Debian's MPICH may stand in its own MPI_Finalize on hosts this slow, with and without longarm.
    hosts+=(--say-finalize "$programs/armci/say_finalize.so")
    # What the programs were linked with may know nothing of verbs: this one does.
    export LD_LIBRARY_PATH=$programs/armci
    if [ "$part" = hosts ]; then
        check "$programs/suite" run --build "$programs" --list tools/verbs/hosts.list --ranks 2,4 "${hosts[@]}"
    else
        check "$programs/suite" run --build "$LONGARM_TEST_GA_BUILD" --list tools/ga/ga.list \
            --only "$GA_PROGRAMS" --ranks 4 "${hosts[@]}"
        check "$programs/suite" run --build "$LONGARM_TEST_GA_BUILD" --list tools/ga/classic.list \
            --only "$CLASSIC_PROGRAMS" --ranks 4 "${hosts[@]}"
    fi
    ;;
iwarp)
    # These devices count no packets: what is tested is that jobs say which requests they have made of them.
    uses_rdma=
    rdma link del rxe0
    rdma link del rxe1
    # Soft iWARP asks for that of root too.
    ulimit -l unlimited
    export LONGARM_VERBS_DEVICE=siw0,siw1 LONGARM_TEST_DEVICE_WORDS=no
    for program in "$programs"/crate-*; do
        check "$program" --test-threads 1
    done
    say "a job says what it has asked of the devices"
    said=$("$longarm" run -n 4 --nodes 2 --timeout 120 --stats --stats-file /tmp/iwarp -- "$programs/armci/contiguous" 2>&1) || failed=1
    printf '%s\n' "$said"
    grep -Eq "^ writes +[1-9]" <<<"$said" || failed=1
    for name in contiguous strided vector accumulate value nonblocking ordering mutex; do
        c_program armci "$name" -n 4 --nodes 2
    done
    jobs "2 x 2" words_are_put threads_of_a_rank windows_come_and_go a_freed_window many_handles lengths_around \
        shapes_of_megabytes operations_of_a_rank what_is_quiet a_barrier_completes who_sees_a_signal \
        rmws_and_accumulates accumulates_of_all_ranks messages_of_every_size collectives_of_every_size words_of_devices
    random 7 4 2 1500
    random 8 4 4 1500
    for name in rank_2_of_4_on_2_nodes_killed_and_all_collectives rank_3_of_4_on_2_nodes_killed_and_all_transfers \
        rank_3_of_4_on_2_nodes_killed_and_the_others; do
        LONGARM_REPORT_MS=10000 tests faults "$name"
    done
    say "devices that do not reach each other: TCP is used, which is said"
    ip rule add pref 50 to 10.77.0.0/24 prohibit
    said=$("$longarm" run -n 4 --nodes 2 --timeout 120 -- "$programs/armci/contiguous" 2>&1) || failed=1
    printf '%s\n' "$said"
    grep -q "the device finds no way to a peer" <<<"$said" || failed=1
    ip rule del pref 50
    say "connections between the devices that break every few seconds"
    while sleep 3; do
        ss -K dst 10.77.0.0/24 >/dev/null
    done &
    shaker=$!
    jobs "2 x 2" lengths_around operations_of_a_rank words_are_put messages_of_a_source
    random 9 4 2 1500
    kill "$shaker"
    ;;
routed)
    export LONGARM_CONNECTIONS_MAX=0
    say "trunks go over queue pairs, and nothing reaches memory by itself"
    said=$("$longarm" run -n 4 --nodes 2 --timeout 120 --stats --stats-file /tmp/routed -- "$programs/armci/contiguous" 2>&1) || failed=1
    printf '%s\n' "$said"
    grep -Eq "^ messages +[1-9]" <<<"$said" || failed=1
    grep -Eq "^ (writes|reads) +[1-9]" <<<"$said" && failed=1
    jobs "2 x 2" words_are_put operations_of_a_rank one_rank_at_a_time lengths_around messages_of_a_source \
        routed_collectives_on_much_data routed_threads
    random 7 4 2 1500
    random 8 4 2 1500
    tests faults rank_2_of_4_on_2_routed_nodes_killed_and_all_transfers
    # Each rank of three nodes calls one of the others by itself.
    export LONGARM_CONNECTIONS_MAX=2
    say "connections of ranks reach memory by themselves, beside trunks"
    said=$("$longarm" run -n 6 --nodes 3 --timeout 120 --stats --stats-file /tmp/routed -- "$programs/armci/contiguous" 2>&1) || failed=1
    printf '%s\n' "$said"
    grep -Eq "^ (writes|reads) +[1-9]" <<<"$said" || failed=1
    unset LONGARM_CONNECTIONS_MAX
    jobs "7 over 3" partly_routed_words partly_routed_operations partly_routed_collectives
    ;;
odp | odp-stock)
    # Pages that have to be brought take an emulated machine a while, and no packet is lost.
    export LONGARM_VERBS_TIMEOUT=19
    said=$("$longarm" info 2>&1) || failed=1
    grep -A 12 -i "^rdma\|rxe0\|on-demand" <<<"$said"
    grep -q ", on-demand paging" <<<"$said" || { say "FAILED: the device has no on-demand paging"; failed=1; }
    modes=(auto no)
    if [ "$part" = odp ]; then
        export LONGARM_TEST_ODP_EXPECTED=used
        modes=(auto all no)
        # Completions are counted in the part `crate`; here a message of the peer that comes late would count among them.
        LONGARM_TEST_ODP=all check "$programs/crate-direct" --test-threads 1 --skip the_device_is_told_of_several
    else
        tests crate-direct "direct::paging::"
    fi
    check "$programs/crate-conformance" two_devices_conform
    for mode in "${modes[@]}"; do
        export LONGARM_VERBS_ODP=$mode
        say "a job with LONGARM_VERBS_ODP=$mode says how its windows were registered"
        said=$("$longarm" run -n 4 --nodes 2 --timeout 120 --stats --stats-file /tmp/odp -- "$programs/armci/contiguous" 2>&1) || failed=1
        printf '%s\n' "$said"
        used="windows on demand" unused="windows kept in memory"
        if [ "$mode" = no ] || ! grep -Eq "on-demand paging +used" <<<"$("$longarm" info 2>&1)"; then
            used="windows kept in memory" unused="windows on demand"
        fi
        if ! grep -Eq "^ $used +[1-9]" <<<"$said" || grep -Eq "^ $unused +[1-9]" <<<"$said"; then
            say "FAILED: $used is what had to be"
            failed=1
        fi
        random 5 4 2 1500
    done
    unset LONGARM_VERBS_ODP
    ;;
nothing)
    uses_rdma=
    say "without a device a job that demands verbs says so"
    said=$("$longarm" run -n 2 --nodes 2 --timeout 60 -- "$programs/armci/contiguous" 2>&1) && failed=1
    printf '%s\n' "$said"
    grep -q "LONGARM_NETMOD" <<<"$said" || failed=1
    unset LONGARM_VERBS_DEVICE
    export LONGARM_NETMOD=auto LONGARM_INTERFACE=10.77.0.1
    ip addr add 10.77.0.1/32 dev lo
    c_program armci contiguous -n 4 --nodes 2
    ;;
armci)
    for name in contiguous strided value; do
        c_program armci "$name" -n 2 --nodes 2
    done
    for name in contiguous strided vector accumulate value nonblocking ordering mutex; do
        c_program armci "$name" -n 4 --nodes 2
    done
    for name in contiguous aggregate memory groups messages; do
        c_program armci "$name" -n 4 --nodes 4
    done
    ;;
shmem)
    for name in amo_types collectives edges locks memory old rma_types setup splits teams waiting again; do
        c_program shmem "$name" -n 4 --nodes 2
    done
    for name in gups hashtable queue sort stencil transpose; do
        c_program shmem "$name" -n 4 --nodes 4
    done
    c_program shmem statics -n 5 --nodes 3 -- nothing
    # Where variables are not mapped anew they are reached through the server.
    SHMEM_STATICS=stay c_program shmem statics -n 5 --nodes 3 -- nothing stays
    ;;
*)
    say "there is no part $part"
    exit 2
    ;;
esac

sent=$(($(packets) - packets_before))
say "$sent packets over RDMA, $(($(segments) - segments_before)) segments over TCP"
if [ -n "$uses_rdma" ] && [ "$sent" -eq 0 ]; then
    say "FAILED: nothing went over RDMA"
    failed=1
fi
exit "$failed"
