#!/usr/bin/env bash
# Runs bert_jax on Google Kubernetes Engine as a JobSet: one pod a machine, all of its chips or GPUs in it.
#
#   bash launch/gke.sh --name=NAME --image=IMAGE --tpu=TYPE --topology=4x4 --workers=4 --chips=4 -- ARGUMENTS
#   bash launch/gke.sh --name=NAME --image=IMAGE --gpu=TYPE --workers=2 --gpus=8 -- ARGUMENTS
#
# The cluster needs JobSet (https://jobset.sigs.k8s.io, 0.6 or newer) and a node pool of that kind. The image
# has the checkout in its working directory and the environment in its python: launch/Dockerfile makes it.
# ARGUMENTS go to bert_jax.main; --workdir must be on gs://. When a pod is lost all start again, and the run
# goes on from there; only what bert_jax refuses (exit code 2) ends the set at once.
#   --tpu=TYPE            of cloud.google.com/gke-tpu-accelerator, such as tpu-v5-lite-podslice
#   --topology=SHAPE      of cloud.google.com/gke-tpu-topology, such as 4x4
#   --chips=NUMBER        TPU chips of a machine
#   --gpu=TYPE            of cloud.google.com/gke-accelerator, such as nvidia-h100-80gb
#   --gpus=NUMBER         GPUs of a machine
#   --workers=NUMBER      machines
#   --spot                on Spot machines
#   --restarts=100        how often the set starts again at most
#   --grace=120           seconds for saving when a pod is told to leave
#   --service-account=default   of Kubernetes; it must be allowed to read and write the bucket. With GPUs it
#                         also gets leave to read pods, jobs and services: so JAX's processes find each other
#   --namespace=default
#   --context=NAME        of kubectl; its current one without
#   --dry-run             prints the manifest and applies nothing
#   --help
set -euo pipefail
# shellcheck source=launch/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

name='' image='' tpu='' topology='' chips='' gpu='' gpus='' workers='' context=''
spot=false restarts=100 grace=120 account=default namespace=default
arguments=()

valued="--name --image --tpu --topology --chips --gpu --gpus --workers --restarts --grace --service-account \
--namespace --context"
set_flag() {
  case $flag in
    --name) name=$value ;;
    --image) image=$value ;;
    --tpu) tpu=$value ;;
    --topology) topology=$value ;;
    --chips) chips=$value ;;
    --gpu) gpu=$value ;;
    --gpus) gpus=$value ;;
    --workers) workers=$value ;;
    --restarts) restarts=$value ;;
    --grace) grace=$value ;;
    --service-account) account=$value ;;
    --namespace) namespace=$value ;;
    --context) context=$value ;;
    --spot) spot=true ;;
  esac
}
read_flags "$valued" --spot "$@"

[[ -n $name ]] || fail "--name is missing: of the JobSet"
[[ -n $image ]] || fail "--image is missing: the container's; launch/Dockerfile makes one"
[[ -n $tpu || -n $gpu ]] || fail "--tpu or --gpu is missing: on what kind of machine?"
[[ -z $tpu || -z $gpu ]] || fail "--tpu and --gpu do not go together"
[[ -n $workers ]] || fail "--workers is missing: how many machines?"
must_match --workers "$workers" '[1-9][0-9]{0,4}' "a whole number from 1"
if [[ -n $tpu ]]; then
  [[ -n $topology ]] || fail "--topology is missing: the shape of the slice, such as 4x4"
  [[ -n $chips ]] || fail "--chips is missing: TPU chips of a machine"
  [[ -z $gpus ]] || fail "--gpus goes with --gpu"
  must_match --topology "$topology" '[0-9]+x[0-9]+(x[0-9]+)?' "a shape, such as 4x4 or 2x2x2"
  must_match --chips "$chips" '[1-9][0-9]?' "a whole number from 1"
  all=1
  for side in ${topology//x/ }; do all=$((all * 10#$side)); done
  [[ $all -eq $((workers * chips)) ]] ||
    fail "--topology=$topology has $all chips, not $((workers * chips)): --workers=$workers of --chips=$chips"
else
  [[ -n $gpus ]] || fail "--gpus is missing: GPUs of a machine"
  [[ -z $topology$chips ]] || fail "--topology and --chips go with --tpu"
  must_match --gpus "$gpus" '[1-9][0-9]?' "a whole number from 1"
fi
label='[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?'
# The names of pods are made of it, and may have 63 letters.
must_match --name "$name" '[a-z]([a-z0-9-]{0,38}[a-z0-9])?' "lower-case letters, digits, dashes, 40 at most"
must_match --namespace "$namespace" "$label" "a name in Kubernetes"
must_match --service-account "$account" "$label" "a name in Kubernetes"
must_match --tpu "$tpu" "($label)?" "a label in Kubernetes"
must_match --gpu "$gpu" "($label)?" "a label in Kubernetes"
must_match --restarts "$restarts" '[0-9]{1,6}' "a whole number"
must_match --grace "$grace" '[0-9]{1,5}' "whole seconds"
[[ ${#arguments[@]} -gt 0 ]] || fail "nothing follows --: give the arguments of bert_jax.main there"
workdir=$(workdir_of "${arguments[@]}")
[[ $workdir == gs://* ]] || fail "--workdir=$workdir: it must be on gs://, pods keep nothing"

refuse_controls() {
  local LC_ALL=C word
  for word in "$@"; do
    word=${word//[$'\n\t\r']/}
    [[ $word != *[[:cntrl:]]* ]] || fail "a control character in ${word//[[:cntrl:]]/?}"
  done
}
refuse_controls "$image" "${arguments[@]}"

# yaml TEXT: a double-quoted scalar; YAML folds the line breaks of Unicode too where they are not escaped.
yaml() {
  local LC_ALL=C text=$1
  text=${text//\\/\\\\}
  text=${text//\"/\\\"}
  text=${text//$'\n'/\\n}
  text=${text//$'\t'/\\t}
  text=${text//$'\r'/\\r}
  text=${text//$'\xc2\x85'/\\N}
  text=${text//$'\xe2\x80\xa8'/\\L}
  text=${text//$'\xe2\x80\xa9'/\\P}
  printf '"%s"' "$text"
}

# Kubernetes reads $(NAME) in a command; a doubled $ is one for it.
command_lines() {
  local word
  for word in "$@"; do
    printf '                - %s\n' "$(yaml "${word//\$/\$\$}")"
  done
}

leave_to_find() {
  cat <<YAML
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: $(yaml "$name")
  namespace: $(yaml "$namespace")
rules:
  - apiGroups: [""]
    resources: ["pods", "services"]
    verbs: ["get", "list"]
  - apiGroups: ["batch"]
    resources: ["jobs"]
    verbs: ["get", "list"]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: $(yaml "$name")
  namespace: $(yaml "$namespace")
subjects:
  - kind: ServiceAccount
    name: $(yaml "$account")
    namespace: $(yaml "$namespace")
roleRef:
  kind: Role
  name: $(yaml "$name")
  apiGroup: rbac.authorization.k8s.io
---
YAML
}

manifest() {
  [[ -z $gpu ]] || leave_to_find
  cat <<YAML
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: $(yaml "$name")
  namespace: $(yaml "$namespace")
YAML
  # The pods of one slice must not be spread over several.
  [[ -z $tpu ]] || printf '%s\n' '  annotations:' \
    '    alpha.jobset.sigs.k8s.io/exclusive-topology: cloud.google.com/gke-nodepool'
  cat <<YAML
spec:
  failurePolicy:
    maxRestarts: $restarts
    rules:
      - action: FailJobSet
        onJobFailureReasons: [PodFailurePolicy]
  replicatedJobs:
    - name: worker
      replicas: 1
      template:
        spec:
          completionMode: Indexed
          parallelism: $workers
          completions: $workers
          backoffLimit: 0
          podFailurePolicy:
            rules:
              - action: FailJob
                onExitCodes:
                  containerName: bert-jax
                  operator: In
                  values: [2]
          template:
            spec:
              restartPolicy: Never
              serviceAccountName: $(yaml "$account")
              terminationGracePeriodSeconds: $grace
              nodeSelector:
YAML
  if [[ -n $tpu ]]; then
    echo "                cloud.google.com/gke-tpu-accelerator: $(yaml "$tpu")"
    echo "                cloud.google.com/gke-tpu-topology: $(yaml "$topology")"
  else
    echo "                cloud.google.com/gke-accelerator: $(yaml "$gpu")"
  fi
  [[ $spot == false ]] || echo '                cloud.google.com/gke-spot: "true"'
  # The coordinator listens on the pod's own address only: the other pods call it there.
  cat <<YAML
              containers:
              - name: bert-jax
                image: $(yaml "$image")
                env:
                - name: POD_IP
                  valueFrom:
                    fieldRef:
                      fieldPath: status.podIP
                - name: JAX_COORDINATOR_PORT
                  value: "8482"
                - name: JAX_COORDINATOR_BIND_ADDRESS
                  value: "\$(POD_IP):8482"
                resources:
                  limits:
                    ${tpu:+google.com/tpu}${gpu:+nvidia.com/gpu}: ${tpu:+$chips}${gpu:+$gpus}
                command:
YAML
  command_lines python -m bert_jax.main "${arguments[@]}" --distributed=auto
}

text=$(manifest) || exit
if [[ $dry_run == true ]]; then
  printf '%s\n' "$text"
  exit
fi
command -v kubectl >/dev/null || fail "kubectl is not installed"
printf '%s\n' "$text" | kubectl ${context:+--context="$context"} apply --filename=-
