#!/usr/bin/env bash
# Runs bert_jax on the GPUs of a Slurm cluster: one task a GPU, as JAX's detection of Slurm has it.
#
#   bash launch/slurm.sh --nodes=2 --gpus-per-node=8 --time=24:00:00 [FLAGS] -- ARGUMENTS of bert_jax.main
#
# It submits a batch script to sbatch. The checkout, its environment and --workdir must be seen by all nodes.
# The job saves --notice seconds before its time is over and is put back into the queue; a job that is
# preempted is put back by Slurm. Either way it goes on from --workdir.
#   --partition=NAME --account=NAME --qos=NAME
#   --job-name=bert_jax
#   --log=bert_jax-%j.log        of the whole job, appended to when it runs again
#   --cpus-per-gpu=NUMBER        for the input pipeline
#   --notice=120                 seconds for saving
#   --restarts=100               how often the job puts itself back at most
#   --python=.venv/bin/python    of the environment with requirements-gpu.txt
#   --coordinator-bind=HOST      where JAX's coordinator listens: on 127.0.0.1 where there is one node, else
#                                on the first node's own name; 0.0.0.0 is every address of it
#   --sbatch-flag=FLAG           one more flag for sbatch, such as --constraint=h100; may be repeated
#   --dry-run                    prints the batch script and submits nothing
#   --help
set -euo pipefail
# shellcheck source=launch/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

nodes='' gpus='' time='' partition='' account='' qos='' cpus='' bind=''
job_name=bert_jax log=bert_jax-%j.log notice=120 restarts=100 python=$root/.venv/bin/python
sbatch_flags=() arguments=()

valued="--nodes --gpus-per-node --time --partition --account --qos --job-name --log --cpus-per-gpu --notice \
--restarts --python --coordinator-bind --sbatch-flag"
set_flag() {
  case $flag in
    --nodes) nodes=$value ;;
    --gpus-per-node) gpus=$value ;;
    --time) time=$value ;;
    --partition) partition=$value ;;
    --account) account=$value ;;
    --qos) qos=$value ;;
    --job-name) job_name=$value ;;
    --log) log=$value ;;
    --cpus-per-gpu) cpus=$value ;;
    --notice) notice=$value ;;
    --restarts) restarts=$value ;;
    --python) python=$value ;;
    --coordinator-bind) bind=$value ;;
    --sbatch-flag) sbatch_flags+=("$value") ;;
  esac
}
read_flags "$valued" "" "$@"

[[ -n $nodes ]] || fail "--nodes is missing: how many machines?"
[[ -n $gpus ]] || fail "--gpus-per-node is missing"
[[ -n $time ]] || fail "--time is missing: the job's limit, such as 24:00:00"
must_match --nodes "$nodes" '[1-9][0-9]{0,4}' "a whole number from 1"
must_match --gpus-per-node "$gpus" '[1-9][0-9]{0,2}' "a whole number from 1"
must_match --cpus-per-gpu "$cpus" '([1-9][0-9]{0,3})?' "a whole number from 1"
must_match --notice "$notice" '[0-9]{1,5}' "whole seconds"
must_match --restarts "$restarts" '[0-9]{1,6}' "a whole number"
must_match --time "$time" '([0-9]+-)?[0-9]+(:[0-9]+){0,2}' "a time of Slurm, such as 24:00:00 or 2-00:00:00"
must_match --coordinator-bind "$bind" '[A-Za-z0-9.-]*' "a host's name or address"
# These stand in the script's comments, which have no quotes.
word='[A-Za-z0-9_][A-Za-z0-9_.,@%+-]*'
must_match --job-name "$job_name" "$word" "letters, digits and _.,@%+- only"
must_match --partition "$partition" "($word)?" "letters, digits and _.,@%+- only"
must_match --account "$account" "($word)?" "letters, digits and _.,@%+- only"
must_match --qos "$qos" "($word)?" "letters, digits and _.,@%+- only"
must_match --log "$log" '[A-Za-z0-9_./@%+~-]+' "a path without spaces"
for flag in ${sbatch_flags[@]+"${sbatch_flags[@]}"}; do
  must_match --sbatch-flag "$flag" '--[a-z-]+(=[A-Za-z0-9_.,:@%+*&|/-]+)?' "a flag of sbatch, without spaces"
done
[[ ${#arguments[@]} -gt 0 ]] || fail "nothing follows --: give the arguments of bert_jax.main there"
[[ -n $(workdir_of "${arguments[@]}") ]] || fail "no --workdir among what follows --: the run needs one"

header() {
  printf '#SBATCH %s\n' \
    --job-name="$job_name" --nodes="$nodes" --ntasks-per-node="$gpus" --gpus-per-node="$gpus" --time="$time" \
    ${partition:+--partition="$partition"} ${account:+--account="$account"} ${qos:+--qos="$qos"} \
    ${cpus:+--cpus-per-task="$cpus"} --output="$log" --open-mode=append --requeue --signal="B:TERM@$notice" \
    ${sbatch_flags[@]+"${sbatch_flags[@]}"}
}

# Tasks of one node share its address; on several nodes the coordinator must be heard by the others.
coordinator() {
  if [[ $nodes -eq 1 && -z $bind ]]; then
    # shellcheck disable=SC2016 # the job expands it, here and below
    echo 'export JAX_COORDINATOR_ADDRESS=127.0.0.1:$port JAX_COORDINATOR_BIND_ADDRESS=127.0.0.1:$port'
  elif [[ -n $bind ]]; then
    echo "export JAX_COORDINATOR_BIND_ADDRESS=$bind:\$port"
  else
    cat <<'JOB'
export JAX_COORDINATOR_BIND_ADDRESS=$SLURMD_NODENAME:$port
if getent ahostsv4 "$SLURMD_NODENAME" | grep -q '^127\.'; then
  echo "error: $SLURMD_NODENAME is 127.x to itself, which no other node hears: --coordinator-bind=0.0.0.0" >&2
  exit 2
fi
JOB
  fi
}

script() {
  echo '#!/usr/bin/env bash'
  header
  cat <<'JOB'
set -uo pipefail
# As JAX would choose it, but known here.
port=$((SLURM_JOB_ID % 4096 + 61440))
export JAX_COORDINATOR_PORT=$port
JOB
  coordinator
  echo "restarts=$restarts"
  [[ -z $cpus ]] || echo "export SRUN_CPUS_PER_TASK=$cpus" # which srun no longer takes from the header
  cat <<'JOB'

# srun itself kills its tasks on SIGTERM, so they are told by scancel, which leaves this shell alone. A second
# SIGTERM would end them before they have saved.
told=false
tell() {
  interrupted=true
  [[ $told == false ]] || return
  told=true # first: another signal may come while scancel runs
  scancel --signal=TERM "$SLURM_JOB_ID"
}
trap tell TERM

JOB
  echo "cd $(quoted "$root") || exit"
  # Every task sees all of its node's GPUs and takes the one of its number. One that has left must not have
  # the others killed while they save.
  local command
  command=$(quoted "$python" -m bert_jax.main "${arguments[@]}" --distributed=auto)
  echo "srun --gpu-bind=none --kill-on-bad-exit=0 --wait=600 $command &"
  cat <<'JOB'
step=$!
while :; do # a signal ends the wait, not the step
  interrupted=false
  wait "$step"
  code=$?
  [[ $interrupted == true ]] || break
done

# A job that was cancelled is not RUNNING any more, and one that is preempted is put back by Slurm.
if [[ $told == true && $code -ne 0 && $code -ne 2 && ${SLURM_RESTART_COUNT:-0} -lt $restarts &&
  $(squeue --noheader --jobs="$SLURM_JOB_ID" --format=%T) == RUNNING ]]; then
  echo "saved; back into the queue"
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
JOB
}

if [[ $dry_run == true ]]; then
  script
  exit
fi
command -v sbatch >/dev/null || fail "sbatch is not here: run this where jobs are submitted"
[[ -x $python ]] || fail "--python=$python is not there: make the environment with requirements-gpu.txt"
script | sbatch
