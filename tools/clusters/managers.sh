# How each process manager starts a program on the hosts of hosts.sh; sourced after folders.sh.
#
#   command_of MANAGER LAYOUT     puts the words that come before the program into the array `command`
#   layout_of HOSTS PPN           prints the layout of so many hosts with so many ranks each
#   agents_of MANAGER             prints an expression for the arguments of the processes that it has on each host
#   is_wanted NAME                whether the array `wanted` has this name; it has all while it is empty
#   fetch_wanted                  reads NAME|SOFTWARE a line, and fetches what those that are wanted need, before there are hosts: they
#                                 have of it what is there when they come up
#
# LAYOUT says how many ranks n1, n2 and so on have: 3,1,2. All is started from n0.

at_n0=(tools/clusters/hosts.sh at n0)

layout_of() {
    printf "%.0s$2," $(seq "$1") | sed 's/,$//'
}

# n1:3,n2:1,n3:2
hosts_of() {
    awk -v RS=, '{ printf("%sn%d:%d", NR > 1 ? "," : "", NR, $1) }' <<<"$1"
}

ranks_of() {
    awk -v RS=, '{ sum += $1 } END { print sum }' <<<"$1"
}

host_count_of() {
    awk -v RS=, 'END { print NR }' <<<"$1"
}

# Which host has which rank, a line each.
file_of() {
    awk -v RS=, '{ for (i = 0; i < $1; i++) printf "n%d\n", NR }' <<<"$1"
}

is_wanted() { [ ${#wanted[@]} -eq 0 ] || printf '%s\n' "${wanted[@]}" | grep -qx -- "$1"; }

fetch_wanted() {
    local name software
    while IFS='|' read -r name software; do
        if [ -n "$software" ] && is_wanted "$name"; then
            # Who lacks it says why when its turn comes.
            tools/clusters/software.sh "$software" >/dev/null </dev/null || true
        fi
    done
}

command_of() {
    local manager=$1 layout=$2 hosts ranks venv=$cache/$1
    hosts=$(hosts_of "$layout")
    ranks=$(ranks_of "$layout")
    # These refuse to run as root without, and root is who makes hosts.
    command=(env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1)
    case $manager in
    # The variable `longarm` is where that command is.
    agents) command+=("$longarm" run --hosts "$hosts" -n "$ranks" --agent-command "$rig/at" --) ;;
    ssh) command+=("$longarm" run --hosts "$hosts" -n "$ranks" --agent-command "$rig/ssh" --) ;;
    hydra4) command+=(mpiexec.hydra -hosts "$hosts" -n "$ranks" -launcher ssh -launcher-exec "$rig/at") ;;
    hydra4-port) command+=(mpiexec.hydra -pmi-port -hosts "$hosts" -n "$ranks" -launcher ssh -launcher-exec "$rig/at") ;;
    hydra5) command+=("$venv/bin/mpiexec.hydra" -hosts "$hosts" -n "$ranks" -launcher ssh -launcher-exec "$rig/at") ;;
    impi)
        # Its -hosts takes no counts.
        tr , '\n' <<<"$hosts" >"$rig/impi-$layout"
        command+=("$venv/bin/mpiexec.hydra" -machinefile "$rig/impi-$layout" -n "$ranks" -bootstrap ssh -bootstrap-exec "$rig/at")
        ;;
    openmpi4)
        command+=(mpirun.openmpi --host "$hosts" -np "$ranks" --mca plm_rsh_agent "$rig/at"
            --mca oob_tcp_if_include 198.51.100.0/24 --bind-to none)
        ;;
    prrte5)
        command+=("PATH=$venv/bin:$PATH" "$venv/bin/prterun" --prefix "$venv" --host "$hosts" -n "$ranks" --prtemca plm_ssh_agent "$rig/at"
            --prtemca prte_if_include 198.51.100.0/24 --bind-to none)
        ;;
    slurm-run)
        # The first ones, as for the others, so that one knows whose link to cut.
        command+=(salloc -Q -N "$(host_count_of "$layout")" -w "$(sed 's/:[0-9]*//g' <<<"$hosts")" -n "$ranks" "$longarm" run -n "$ranks" --)
        ;;
    slurm-*)
        file_of "$layout" >"$rig/slurm-$layout"
        command+=("SLURM_HOSTFILE=$rig/slurm-$layout" srun "--mpi=${manager#slurm-}" -N "$(host_count_of "$layout")" -n "$ranks" -m arbitrary)
        ;;
    esac
}

agents_of() {
    case $1 in
    hydra*) echo '[h]ydra_pmi_proxy' ;;
    impi) echo '[h]ydra_(bstrap|pmi)_proxy' ;;
    openmpi4) echo '[o]rted' ;;
    prrte5) echo '[p]rted' ;;
    # Not the shell that becomes the agent: what it runs while it reads its settings bears its arguments, and is missed by nobody.
    ssh | agents) echo '^ *(ssh|longarm) .*[l]ongarm.* agent' ;;
    # Not srun, which has two processes, one of which only waits for the end of the other.
    slurm-run) echo '^ *[^ ]* [^ ]*[l]ongarm agent' ;;
    slurm-*) echo '[s]lurmstepd' ;;
    esac
}
