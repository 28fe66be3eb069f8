#!/usr/bin/env bash
# A dask scheduler on this machine and workers on a list of hosts, reached by ssh, while a command runs.
#
#   cluster/ssh.sh -h hosts.txt -m 8GB -f /shared/scheduler.json -- \
#       mllkm train /shared/train.h5 --out /shared/run --memory 8GB --scheduler-file /shared/scheduler.json
#
#   -h FILE    hosts, one a line as for ssh; blank lines and lines with # in front are skipped
#   -n N       workers on each (1)
#   -m SIZE    memory limit of each worker; at least the memory budget of the training (2GB)
#   -t N       threads of each worker (1)
#   -f FILE    file that tells where the scheduler is, in a folder that all hosts share (scheduler.json); their output
#              goes to FILE.logs/
#   -i NAME    network interface that scheduler and workers use, such as ib0
#
# Scheduler and workers talk by TLS, with a certificate made for this run, in FILE.tls/, which only its owner can read.
# `--insecure` as the first option switches that off, where no others can reach this network.
#
# ssh must get in without a password. PYTHON names the interpreter, the same path on all hosts; it is the one on the
# PATH here. Without a command the cluster stays until Ctrl-C. The exit code is that of the command.
set -u
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

hosts_file='' workers=1 memory=2GB threads=1 file=scheduler.json interface=()
words=("$0" "$@")
[ "${1:-}" = --insecure ] && INSECURE=yes && shift
while getopts h:n:m:t:f:i: option; do
    case $option in
        h) hosts_file=$OPTARG ;;
        n) workers=$OPTARG ;;
        m) memory=$OPTARG ;;
        t) threads=$OPTARG ;;
        f) file=$OPTARG ;;
        i) interface=(--interface "$OPTARG") ;;
        *) fail "usage: ssh.sh [--insecure] -h HOSTS [-n WORKERS] [-m MEMORY] [-t THREADS] [-f FILE] [-i NAME] [-- COMMAND ...]" ;;
    esac
done
shift $((OPTIND - 1))
WITHIN=$(repeated "${words[@]:0:${#words[@]}-$#}")
whole_number -n "$workers"
whole_number -t "$threads"
[ -r "$hosts_file" ] || fail "-h ${hosts_file:-(missing)}: give a file with one host a line"
mapfile -t hosts < <(sed -e 's/[[:space:]]//g' -e '/^#/d' -e '/^$/d' "$hosts_file")
[ ${#hosts[@]} -gt 0 ] || fail "$hosts_file names no host: write one a line"
PYTHON=$(command -v "$PYTHON") || fail "python is not on the PATH: activate the environment, or set PYTHON"
case $file in
    /*) ;;
    *) file=$PWD/$file ;;
esac

on_host() { # HOST COMMAND...: the words arrive there as they are here
    local host=$1
    shift
    ssh -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=15 -- "$host" "$(printf '%q ' "$@")"
}

host_option=()
if [ ${#interface[@]} -gt 0 ]; then
    address=$(address_of "${interface[1]}") || exit 2
    host_option=(--host "$address")
fi
open_lifeline "$file"
for host in "${hosts[@]}"; do
    on_host "$host" true </dev/null || fail "$host is not reached: see that \`ssh $host true\` asks for nothing" 1
    on_host "$host" test -d "$LOGS" </dev/null || fail "$host does not see $LOGS: put FILE in a folder that it shares" 1
    on_host "$host" test -x "$PYTHON" </dev/null || fail "$host has no $PYTHON: set PYTHON to a path that all have" 1
done
start_scheduler "${host_option[@]}"
for host in "${hosts[@]}"; do
    for ((i = 1; i <= workers; i++)); do
        name=worker-$((${#KEPT[@]}))-$host
        keep "$name" again on_host "$host" env "${WORKER_ENVIRONMENT[@]}" bash -c "$KEEPER" keeper 5 \
            "$PYTHON" -m distributed.cli.dask_worker --scheduler-file "$file" --name "$name" \
            --nworkers 1 --nthreads "$threads" --memory-limit "$memory" \
            --no-dashboard --dashboard-address 127.0.0.1:0 --death-timeout 60 "${TLS[@]}" "${interface[@]}"
    done
done
run_command "$@"
exit "$CODE"
