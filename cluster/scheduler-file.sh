#!/usr/bin/env bash
# A dask scheduler and workers on this machine, as processes of their own, while a command runs.
#
#   cluster/scheduler-file.sh -n 2 -m 1GB -f scheduler.json -- \
#       mllkm train train.h5 --out run --memory 1GB --scheduler-file scheduler.json
#
#   -n N       workers (1)
#   -m SIZE    memory limit of each; at least the memory budget of the training (2GB)
#   -t N       threads of each (1)
#   -f FILE    file that tells where the scheduler is (scheduler.json); their output goes to FILE.logs/
#
# Without a command they stay until Ctrl-C. The exit code is that of the command. PYTHON names the interpreter.
set -u
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

words=("$0" "$@")
workers=1 memory=2GB threads=1 file=scheduler.json
while getopts n:m:t:f: option; do
    case $option in
        n) workers=$OPTARG ;;
        m) memory=$OPTARG ;;
        t) threads=$OPTARG ;;
        f) file=$OPTARG ;;
        *) fail "usage: scheduler-file.sh [-n WORKERS] [-m MEMORY] [-t THREADS] [-f FILE] [-- COMMAND ...]" ;;
    esac
done
shift $((OPTIND - 1))
WITHIN=$(repeated "${words[@]:0:${#words[@]}-$#}")
whole_number -n "$workers"
whole_number -t "$threads"

open_lifeline "$file"
start_scheduler --host 127.0.0.1
for ((i = 1; i <= workers; i++)); do
    keep "worker-$i" env "${WORKER_ENVIRONMENT[@]}" bash -c "$KEEPER" keeper 5 \
        "$PYTHON" -m distributed.cli.dask_worker --scheduler-file "$file" --name "worker-$i" \
        --nworkers 1 --nthreads "$threads" --memory-limit "$memory" \
        --host 127.0.0.1 --no-dashboard --dashboard-address 127.0.0.1:0 --death-timeout 60 "${TLS[@]}"
done
run_command "$@"
exit "$CODE"
