#!/usr/bin/env bash
# A training on Kubernetes, beside the cluster of cluster/kubernetes/daskcluster.yaml.
#
#   jobs/submit/kubernetes.sh JOB.toml [OPTION OF kubectl ...]
#
# as in `jobs/submit/kubernetes.sh job.toml --namespace=learning`. It starts the cluster if it is not there, and leaves
# it. Paths in the job file are those of the pods: absolute, under /data, which is the volume claim mllkm-data. Its
# memory budget is at most the --memory-limit of the workers. The same command goes on with a training that was
# interrupted.
#
# MLLKM_IMAGE names the image of all pods, such as registry.example/me/mllkm-scale:1; without it they run the one of the
# manifests.
set -eu

[ $# -gt 0 ] || {
    echo "usage: jobs/submit/kubernetes.sh JOB.toml [OPTION OF kubectl ...]" >&2
    exit 2
}
job=$1
shift
here=$(dirname "${BASH_SOURCE[0]}")
[ -r "$job" ] || {
    echo "kubernetes.sh: $job cannot be read: name a job file" >&2
    exit 2
}
apply() { # MANIFEST...
    for manifest; do
        echo "---"
        sed -e "s|image: .*|image: $image|" -e "s|'jobs/submit/kubernetes.sh job.toml'|'$again'|" "$manifest"
    done | kubectl "${options[@]}" apply -f -
}

options=("$@") manifests=$here/../../cluster/kubernetes
image=${MLLKM_IMAGE:-mllkm-scale:latest}
again=$({
    [ -z "${MLLKM_IMAGE:-}" ] || printf 'MLLKM_IMAGE=%q ' "$MLLKM_IMAGE"
    printf '%q ' "$0" "$job" "$@"
} | sed -e 's/[\\|&]/\\&/g' -e 's/ $//') # what a training that ends early tells
apply "$manifests/volume.yaml" "$manifests/daskcluster.yaml" "$manifests/network.yaml"
kubectl "$@" delete --ignore-not-found job/mllkm configmap/mllkm-job
kubectl "$@" create configmap mllkm-job --from-file=job.toml="$job"
apply "$here/kubernetes-job.yaml"
echo "follow it with: kubectl${*:+ $*} logs --follow job/mllkm"
echo "end the cluster with: kubectl${*:+ $*} delete daskcluster/mllkm"
