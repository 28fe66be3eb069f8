#!/usr/bin/env bash
# A training on SLURM, scheduler, workers and master in one allocation.
#
#   jobs/submit/slurm.sh JOB.toml [--insecure] [--workers N] [OPTION OF sbatch ...]
#
# Called outside of SLURM it submits itself, with as much memory for each task as the memory budget of the job file
# needs. What follows the job file goes to sbatch and wins over the lines below, as in
#
#   jobs/submit/slurm.sh job.toml --workers 16 --partition=long --time=1-00:00:00
#
# Two minutes before its time is up, SLURM sends SIGTERM: the training writes its checkpoint and ends with exit code
# 143. The same command goes on from there, as a job that was preempted and requeued does by itself; with
# MLLKM_REQUEUE=1 in the environment, a job that runs out of time requeues itself, too.
#
# Scheduler and workers talk by TLS, with a certificate made for this job in the run folder, which only its owner can
# read. --insecure switches that off, where no others can reach this network.
#
# MLLKM_INTERFACE names the network interface to use, such as ib0. Output is in the run folder, in cluster-*.log:
# 0 is the scheduler.
#SBATCH --job-name=mllkm
#SBATCH --ntasks=5
#SBATCH --cpus-per-task=1
#SBATCH --time=04:00:00
#SBATCH --signal=B:TERM@120
#SBATCH --requeue
#SBATCH --no-kill
#SBATCH --open-mode=append
#SBATCH --output=mllkm-%j.log
set -u
OVERHEAD_BYTES=500000000 # nanny and scheduler

fail() {
    printf 'slurm.sh: %s\n' "$1" >&2
    exit "${2:-2}"
}

[ $# -gt 0 ] || fail "usage: jobs/submit/slurm.sh JOB.toml [--insecure] [--workers N] [OPTION OF sbatch ...]"
job=$1
shift
if [ -n "${SLURM_JOB_ID:-}" ]; then # the settings of whoever submitted, which `sbatch --export=NONE` would leave out
    for setting in "$@"; do
        [[ $setting =~ ^[A-Z_]+= ]] && export "${setting?}"
    done
fi
choices=(OPENBLAS_CORETYPE OPENBLAS_L2_SIZE MKL_CBWR NPY_DISABLE_CPU_FEATURES NPY_ENABLE_CPU_FEATURES)
again=$( # the command line that does the same again, with the settings that the environment gives this one
    for name in PYTHON MLLKM_INSECURE MLLKM_INTERFACE MLLKM_REQUEUE "${choices[@]}"; do
        [ -z "${!name:-}" ] || printf '%s=%q ' "$name" "${!name}"
    done
    printf '%q ' "$0" "$job" "$@"
)
PYTHON=$(command -v "${PYTHON:-python}") || fail "python is not on the PATH: activate the environment, or set PYTHON"
mllkm=(mllkm)
command -v mllkm >/dev/null || mllkm=("$PYTHON" -m mllkm_scale) # PYTHON may be of an environment that is not active
facts=$("$PYTHON" -m mllkm_scale.run.job "$job") || exit 2
budget=${facts%% *} run=${facts#* }

if [ -z "${SLURM_JOB_ID:-}" ]; then
    options=() settings=("PYTHON=$PYTHON" "MLLKM_RESUME_WITH=$again")
    # sbatch takes one option on memory: that of the user, if there is one.
    [[ " $* " =~ [[:space:]]--mem(-per-cpu|-per-gpu)?[=[:space:]] ]] ||
        options+=("--mem-per-cpu=$(((budget + OVERHEAD_BYTES + 1048575) / 1048576))M")
    if [ "${1:-}" = --insecure ]; then
        MLLKM_INSECURE=1
        shift
    fi
    if [ "${1:-}" = --workers ]; then
        [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || fail "--workers ${2:-}: give a whole number from 1"
        options+=("--ntasks=$(($2 + 1))") # the first task is for the scheduler and the master
        shift 2
    fi
    # The choices are of the code that BLAS and NumPy run on a processor, and so of the bits.
    for name in MLLKM_INSECURE MLLKM_INTERFACE MLLKM_REQUEUE "${choices[@]}"; do
        [ -z "${!name:-}" ] || settings+=("$name=${!name}")
    done
    exec sbatch "${options[@]}" "$@" "${BASH_SOURCE[0]}" "$job" "${settings[@]}"
fi

[ "${SLURM_NTASKS:-1}" -ge 2 ] || fail "--ntasks=${SLURM_NTASKS:-1}: ask for one task more than there are to be workers"
mkdir -p -- "$run" || fail "the run folder $run cannot be written" 7
file=$run/scheduler-$SLURM_JOB_ID.json
rm -rf -- "$file" "$file.pid" "$file.tls" # of the same job, before it was requeued
tls=()
if [ -n "${MLLKM_INSECURE:-}" ]; then
    echo "slurm.sh: no TLS: whoever reaches the ports of this cluster can run code as $(id -un)" >&2
else
    "$PYTHON" -m mllkm_scale.cluster.certificates "$file.tls" || fail "the certificates could not be made" 8
    tls=(--tls-ca-file "$file.tls/cert.pem" --tls-cert "$file.tls/cert.pem" --tls-key "$file.tls/key.pem")
fi

if [ -n "${MLLKM_INTERFACE:-}" ]; then # dask's scheduler takes no interface together with TLS
    MLLKM_HOST=$("$PYTHON" -c '
import sys; from distributed.utils import get_ip_interface; print(get_ip_interface(sys.argv[1]))' "$MLLKM_INTERFACE" \
        2>/dev/null) || fail "MLLKM_INTERFACE=$MLLKM_INTERFACE: \`ip -brief address\` on a node lists its interfaces"
    export MLLKM_HOST
fi

# One step: its first task is on the node of this script, and leaves the master what the scheduler does not use.
srun --export=ALL --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" --no-kill --kill-on-bad-exit=0 --input=none \
    --output="$run/cluster-$SLURM_JOB_ID-%t.log" bash -c '
    python=$1 file=$2 budget=$3 threads=$4
    shift 4
    export DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL=60s # a frozen worker is given up, and others do its tasks
    if [ "$SLURM_PROCID" = 0 ]; then
        exec "$python" -m distributed.cli.dask_scheduler --scheduler-file "$file" --pid-file "$file.pid" \
            --port 0 --dashboard-address 127.0.0.1:0 ${MLLKM_HOST:+--host "$MLLKM_HOST"} "$@"
    fi
    until # the job has ended: a worker whose link is cut for half a minute ends, too, and another one follows it
        env OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 VECLIB_MAXIMUM_THREADS=1 NUMBA_NUM_THREADS=1 \
        DASK_DISTRIBUTED__WORKER__MEMORY__TARGET=False DASK_DISTRIBUTED__WORKER__MEMORY__SPILL=False \
        DASK_DISTRIBUTED__WORKER__MEMORY__PAUSE=False DASK_DISTRIBUTED__WORKER__MEMORY__TERMINATE=0.95 \
        DASK_DISTRIBUTED__WORKER__PROFILE__INTERVAL=100ms \
        "$python" -m distributed.cli.dask_worker --scheduler-file "$file" --name "worker-$SLURM_PROCID" \
        --nworkers 1 --nthreads "$threads" --memory-limit "$budget" \
        --no-dashboard --dashboard-address 127.0.0.1:0 --death-timeout 120 ${MLLKM_INTERFACE:+--interface "$MLLKM_INTERFACE"} "$@"
        [ ! -e "$file" ]
    do sleep 5; done
' step "$PYTHON" "$file" "$budget" "${SLURM_CPUS_PER_TASK:-1}" "${tls[@]}" &
step=$!

"${mllkm[@]}" run "$job" --resume --scheduler-file "$file" &
master=$! terminated=''
trap 'terminated=yes; kill -TERM "$master" 2>/dev/null' TERM
while kill -0 "$master" 2>/dev/null; do # a signal ends `wait`, not the training
    wait "$master"
done
wait "$master"
code=$?
trap '' TERM
# The scheduler, which is on this node, ends its workers; what is left of the step after ten seconds is ended by SLURM.
rm -f -- "$file" # no worker comes again
kill -TERM "$(cat "$file.pid")" 2>/dev/null
for _ in {1..50}; do
    kill -0 "$step" 2>/dev/null || break
    sleep 0.2
done
kill -TERM "$step" 2>/dev/null
wait "$step"
rm -rf -- "$file" "$file.pid" "$file.tls"
if [ -n "$terminated" ] && [ "$code" = 143 ] && [ "${MLLKM_REQUEUE:-}" = 1 ]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
