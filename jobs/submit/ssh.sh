#!/usr/bin/env bash
# A training with workers on a list of hosts, reached by ssh; master and scheduler are on this machine.
#
#   jobs/submit/ssh.sh JOB.toml [--insecure] -h hosts.txt [-n WORKERS A HOST] [-t THREADS] [-i INTERFACE]
#
# Options are those of cluster/ssh.sh; the workers' memory limit is the memory budget of the job file. The same command
# goes on with a training that was interrupted. Data and run folder must be on a file system that all hosts share.
set -u
. "$(dirname "${BASH_SOURCE[0]}")/../../cluster/common.sh"

[ $# -gt 0 ] || {
    echo "usage: jobs/submit/ssh.sh JOB.toml -h HOSTS [-n WORKERS] [-t THREADS] [-i INTERFACE]" >&2
    exit 2
}
script=("$0" "$@")
job=$1
shift
secure=()
[ "${1:-}" = --insecure ] && secure=(--insecure) && shift
mllkm=(mllkm)
command -v mllkm >/dev/null || mllkm=("$PYTHON" -m mllkm_scale) # PYTHON may be of an environment that is not active
facts=$("$PYTHON" -m mllkm_scale.run.job "$job") || exit 2
budget=${facts%% *} run=${facts#* }
MLLKM_RESUME_WITH=$(repeated "${script[@]}")
export MLLKM_RESUME_WITH=${MLLKM_RESUME_WITH% }
exec "$(dirname "${BASH_SOURCE[0]}")/../../cluster/ssh.sh" "${secure[@]}" -m "$budget" -f "$run/scheduler.json" "$@" -- \
    "${mllkm[@]}" run "$job" --resume --scheduler-file "$run/scheduler.json"
