# What the scripts of this folder share: how a scheduler and workers are started, and that all of them end.
# shellcheck shell=bash

# Bits follow from the code that BLAS and NumPy choose for a processor, and these variables make the choice.
CODE_CHOICE=(OPENBLAS_CORETYPE OPENBLAS_L2_SIZE MKL_CBWR NPY_DISABLE_CPU_FEATURES NPY_ENABLE_CPU_FEATURES)

repeated() { # WORD...: as a command line that does the same again, with the settings that the environment gives it
    local name
    for name in PYTHON "${CODE_CHOICE[@]}"; do
        [ -z "${GIVEN[$name]:-}" ] || printf '%s=%q ' "$name" "${GIVEN[$name]}"
    done
    printf '%q ' "$@"
}

declare -A GIVEN
for name in PYTHON "${CODE_CHOICE[@]}"; do
    GIVEN[$name]=${!name:-}
done
PYTHON=${PYTHON:-python}

# As mllkm_scale/cluster/local.py starts its own workers: one thread a task, and memory is the training's business.
WORKER_ENVIRONMENT=(
    OMP_NUM_THREADS=1
    OPENBLAS_NUM_THREADS=1
    MKL_NUM_THREADS=1
    VECLIB_MAXIMUM_THREADS=1
    NUMBA_NUM_THREADS=1
    DASK_DISTRIBUTED__WORKER__MEMORY__TARGET=False
    DASK_DISTRIBUTED__WORKER__MEMORY__SPILL=False
    DASK_DISTRIBUTED__WORKER__MEMORY__PAUSE=False
    DASK_DISTRIBUTED__WORKER__MEMORY__TERMINATE=0.95
    DASK_DISTRIBUTED__WORKER__PROFILE__INTERVAL=100ms
)

# Workers make the same choice as the master.
for name in "${CODE_CHOICE[@]}"; do
    [ -z "${!name:-}" ] || WORKER_ENVIRONMENT+=("$name=${!name}")
done

# A worker that gives no sign of life, because its machine is frozen, is given up after this time, and its tasks are done
# by others.
SCHEDULER_ENVIRONMENT=(DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL=60s)

# keeper SECONDS COMMAND...: runs a command until standard input ends, and SECONDS longer. That end comes from the
# system, not from the script, so that nothing outlives a script that was killed, nor an ssh connection that was cut.
# The seconds are for workers: told to end by their scheduler and by a signal at the same time, they may take ten.
# Newlines are taken out of it: it travels through ssh.
KEEPER='n=$((5 * $1)); shift; exec 3<&0;
"$@" 3<&- </dev/null & pid=$!;
{ read -r <&3; while [ $((n -= 1)) -ge 0 ]; do sleep 0.2; done; kill -TERM $pid; } >/dev/null 2>&1 & reader=$!;
wait $pid; code=$?; kill $reader 2>/dev/null; exit $code'
KEEPER=${KEEPER//$'\n'/ }

fail() {
    printf '%s: %s\n' "${0##*/}" "$1" >&2
    exit "${2:-2}"
}

whole_number() { # NAME VALUE
    [[ $2 =~ ^[1-9][0-9]*$ ]] || fail "$1 $2: give a whole number from 1"
}

# Call it first, in the script itself, whose own words stand in WITHIN. From here on, what `keep` starts ends with the script.
open_lifeline() { # SCHEDULER_FILE, and INSECURE in the environment to do without TLS
    if [ -e "$1" ]; then
        fail "$1 is there already: another cluster uses it, or one was killed; then remove it, or name another with -f"
    fi
    mkdir -p -- "$1.logs" || fail "the folder of $1 cannot be written: name another file with -f"
    FILE=$1 LOGS=$1.logs KEPT=()
    PLACE=$(mktemp -d) || fail "no temporary folder: set TMPDIR"
    mkfifo "$PLACE/lifeline"
    exec 9<>"$PLACE/lifeline" # open for writing until the script ends
    trap end EXIT
    if [ -n "${INSECURE:-}" ]; then
        TLS=()
        printf '%s: %s\n' "${0##*/}" "no TLS: whoever reaches the ports of this cluster can run code as $(id -un)" |
            tee "$LOGS/insecure.log" >&2
    else
        "$PYTHON" -m mllkm_scale.cluster.certificates "$FILE.tls" || fail "the certificates could not be made" 1
        TLS=(--tls-ca-file "$FILE.tls/cert.pem" --tls-cert "$FILE.tls/cert.pem" --tls-key "$FILE.tls/key.pem")
    fi
    # A process group for each background command: Ctrl-C reaches the script alone, which passes it on to the training
    # and lets the workers live until that has written its checkpoint.
    set -m
}

keep() { # NAME COMMAND...: in the background, its output in LOGS/NAME.log
    local name=$1
    shift
    "$@" <"$PLACE/lifeline" >"$LOGS/$name.log" 2>&1 9>&- &
    KEPT+=($!)
}

again() { # COMMAND...: and anew when it ends, as where a link was cut, for as long as the script lives
    local ended
    while true; do
        "$@"
        read -r -t 5 # of the lifeline, which holds nothing
        ended=$?
        [ "$ended" -gt 128 ] || return # it has an end now, and so has the script
    done
}

address_of() { # INTERFACE: its address; dask's scheduler takes no interface together with TLS
    "$PYTHON" -c 'import sys; from distributed.utils import get_ip_interface; print(get_ip_interface(sys.argv[1]))' "$1" \
        2>/dev/null || fail "-i $1: this machine has no network interface of that name: \`ip -brief address\` lists them"
}

start_scheduler() { # HOST_OPTIONS...
    keep scheduler env "${SCHEDULER_ENVIRONMENT[@]}" bash -c "$KEEPER" keeper 0 \
        "$PYTHON" -m distributed.cli.dask_scheduler --scheduler-file "$FILE" \
        --port 0 --dashboard-address 127.0.0.1:0 "${TLS[@]}" "$@"
    for _ in {1..300}; do # a minute
        [ -s "$FILE" ] && return
        kill -0 "${KEPT[0]}" 2>/dev/null || break
        sleep 0.2
    done
    tail -n 3 "$LOGS/scheduler.log" >&2
    fail "the scheduler did not come up: $LOGS/scheduler.log says why" 1
}

# Runs the training and passes signals on to it; its exit code is left in CODE. Without a command, waits for a signal.
# A training that is interrupted tells how to go on, in a cluster that is made by the same words as this one.
run_command() {
    export MLLKM_WITHIN=$WITHIN
    if [ $# -eq 0 ]; then
        sleep infinity 9>&- &
    else
        "$@" 9>&- &
    fi
    local command=$!
    trap 'kill -INT "$command" 2>/dev/null' INT
    trap 'kill -TERM "$command" 2>/dev/null' TERM HUP
    while kill -0 "$command" 2>/dev/null; do # a signal ends `wait`, not the command
        wait "$command"
    done
    wait "$command"
    CODE=$?
    trap '' INT TERM HUP
}

end() {
    trap '' INT TERM HUP
    exec 9>&-
    for _ in {1..50}; do # ten seconds to end by themselves
        kill -0 "${KEPT[@]}" 2>/dev/null || break # fails when none is left
        sleep 0.2
    done
    for pid in "${KEPT[@]}"; do
        kill -KILL -- "-$pid" 2>/dev/null
    done
    rm -rf -- "$PLACE" "$FILE" "$FILE.tls"
}
