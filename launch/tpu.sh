#!/usr/bin/env bash
# Runs bert_jax on a Cloud TPU VM, or on a slice of many hosts (queued resources; TPU v2 to v6e).
#
#   bash launch/tpu.sh COMMAND --name=NAME --project=PROJECT --zone=ZONE [FLAGS] [-- ARGUMENTS]
#
# Commands, in the order of their use, with their flags:
#   create       asks for the TPU and waits until it is there; it is billed from then until it is deleted
#                  --accelerator-type=TYPE         such as v5litepod-16 or v6e-8; required
#                  --spot                          cheaper, and may be taken away; on demand without it
#                  --runtime-version=VERSION       of the host's image; found from the type
#                  --valid-until-duration=TIME     the request ends after that wait, such as 6h
#                  --create-flag=FLAG              one more flag for gcloud's create; may be repeated
#   install      copies this checkout to every host, and makes its environment with requirements-tpu.txt
#   run          starts bert_jax.main ARGUMENTS --distributed=auto on every host, in the background
#   watch        waits until the run has ended. Where it has not, but is gone, or the TPU was taken away:
#                deletes what is left of it, asks again, installs, and runs again from the --workdir on gs://.
#                Takes the flags of create and the ARGUMENTS of run, and
#                  --tries=20                      how often it does that at most
#                  --backoff=60                    seconds before; doubled until a run is seen, up to 1800
#                  --delete-when-done              deletes the TPU at the end, whatever the end was
#   logs         follows the log of host --worker=0
#   tensorboard  TensorBoard on host 0, at http://localhost:6006 here, through ssh; needs --workdir=DIR
#                  --port=6006, --bind=localhost   where it listens here
#   stop         SIGTERM: the run saves and leaves; waits --grace=600 seconds for that
#   delete       deletes the TPU, after asking; --yes does not ask
#
# For every command:
#   --dry-run              prints each command that would be run, and runs none
#   --connect-flag=FLAG    for gcloud's ssh and scp, such as --internal-ip; may be repeated
#   --poll=30              seconds between two looks at a state
#   --help
# What follows -- goes to bert_jax.main unchanged.
set -euo pipefail
# shellcheck source=launch/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

name='' project='' zone='' accelerator='' runtime='' valid_until='' workdir=''
spot=false yes=false delete_when_done=false
tries=20 backoff=60 worker=0 port=6006 bind=localhost grace=600 poll=30
create_flags=() connect_flags=() arguments=()

command=${1:-}
case $command in
  create | install | run | watch | logs | tensorboard | stop | delete) shift ;;
  --help | -h | help)
    help "${BASH_SOURCE[0]}"
    exit
    ;;
  '') fail "no command: one of create, install, run, watch, logs, tensorboard, stop, delete; see --help" ;;
  *) fail "unknown command $command: one of create, install, run, watch, logs, tensorboard, stop, delete" ;;
esac

valued="--name --project --zone --connect-flag --poll" switches=
case $command in
  create | watch)
    valued+=" --accelerator-type --runtime-version --valid-until-duration --create-flag"
    switches+=" --spot"
    ;;
esac
case $command in
  watch)
    valued+=" --tries --backoff"
    switches+=" --delete-when-done"
    ;;
  logs) valued+=" --worker" ;;
  tensorboard) valued+=" --workdir --port --bind" ;;
  stop) valued+=" --grace" ;;
  delete) switches+=" --yes" ;;
esac

set_flag() {
  case $flag in
    --name) name=$value ;;
    --project) project=$value ;;
    --zone) zone=$value ;;
    --accelerator-type) accelerator=$value ;;
    --runtime-version) runtime=$value ;;
    --valid-until-duration) valid_until=$value ;;
    --create-flag) create_flags+=("$value") ;;
    --connect-flag) connect_flags+=("$value") ;;
    --workdir) workdir=$value ;;
    --tries) tries=$value ;;
    --backoff) backoff=$value ;;
    --worker) worker=$value ;;
    --port) port=$value ;;
    --bind) bind=$value ;;
    --grace) grace=$value ;;
    --poll) poll=$value ;;
    --spot) spot=true ;;
    --yes) yes=true ;;
    --delete-when-done) delete_when_done=true ;;
  esac
}
read_flags "$valued" "$switches" "$@"

[[ -n $name ]] || fail "--name is missing: which TPU?"
[[ -n $project ]] || fail "--project is missing: the Google Cloud project that pays"
[[ -n $zone ]] || fail "--zone is missing: where the TPU is, such as us-east5-a"
must_match --name "$name" '[a-z]([a-z0-9-]{0,61}[a-z0-9])?' \
  "lower-case letters, digits and dashes, 63 at most, a letter first"
must_match --project "$project" '[a-z][a-z0-9.:-]+' "a project's id, such as my-project-123"
must_match --zone "$zone" '[a-z]+(-[a-z0-9]+)+' "a zone, such as us-east5-a"
must_match --tries "$tries" '[0-9]{1,4}' "a whole number"
must_match --backoff "$backoff" '[0-9]{1,5}' "whole seconds"
must_match --grace "$grace" '[0-9]{1,5}' "whole seconds"
must_match --worker "$worker" '[0-9]{1,5}' "the number of a host"
must_match --port "$port" '[0-9]{2,5}' "the number of a port"
must_match --bind "$bind" '[A-Za-z0-9.:*-]+|\[[0-9a-fA-F:]+\]' "a host's name or address"
must_match --poll "$poll" '[0-9]{1,5}(\.[0-9]+)?' "seconds"
case $command in
  create | watch)
    [[ -n $accelerator ]] || fail "--accelerator-type is missing: the kind and size, such as v5litepod-16"
    must_match --accelerator-type "$accelerator" '[a-z0-9]+-[0-9]+' "a kind and size, such as v5litepod-16"
    case ${runtime:+known}$accelerator in
      known*) ;;
      v[234]-*) runtime=tpu-ubuntu2204-base ;;
      v5litepod-*) runtime=v2-alpha-tpuv5-lite ;;
      v5p-*) runtime=v2-alpha-tpuv5 ;;
      v6e-*) runtime=v2-alpha-tpuv6e ;;
      *) fail "--runtime-version is missing: none is known for $accelerator" ;;
    esac
    ;;
esac
case $command in
  run | watch)
    [[ ${#arguments[@]} -gt 0 ]] || fail "nothing follows --: give the arguments of bert_jax.main there"
    workdir=$(workdir_of "${arguments[@]}")
    [[ -n $workdir ]] || fail "no --workdir among what follows --: the run needs one, on gs://"
    if [[ $workdir != gs://* ]]; then
      [[ $command == run ]] || fail "--workdir=$workdir: it must be on gs://, the TPU's disks go with it"
      echo "note: --workdir=$workdir lies on the TPU and goes with it; several hosts need gs://" >&2
    fi
    ;;
  tensorboard) [[ -n $workdir ]] || fail "--workdir is missing: whose events?" ;;
esac
case $command in
  run | watch) ;;
  *) [[ ${#arguments[@]} -eq 0 ]] || fail "$command takes nothing after --" ;;
esac
[[ $dry_run == true ]] || command -v gcloud >/dev/null ||
  fail "gcloud is not installed: https://cloud.google.com/sdk/docs/install"

place=(--project="$project" --zone="$zone")
queued=(gcloud compute tpus queued-resources)
vm=(gcloud compute tpus tpu-vm)
on_host=(bash bert_jax/launch/tpu_worker.sh)
describe=("${queued[@]}" describe "$name" "${place[@]}" "--format=value(state.state)")
describe_vm=("${vm[@]}" describe "$name" "${place[@]}" "--format=value(state)")
look=("${vm[@]}" ssh "$name" "${place[@]}" ${connect_flags[@]+"${connect_flags[@]}"} --worker=all
  --command="if [ -e ${on_host[1]} ]; then $(quoted "${on_host[@]}" state); else echo 'bert_jax: idle'; fi")
remove=("${queued[@]}" delete "$name" "${place[@]}" --force --quiet)

say() { echo "$(date '+%H:%M:%S') $*"; }

# on_workers WHICH COMMAND...: runs a command on hosts of the TPU, with its words as they are.
on_workers() {
  execute "${vm[@]}" ssh "$name" "${place[@]}" ${connect_flags[@]+"${connect_flags[@]}"} --worker="$1" \
    --command="$(quoted "${@:2}")"
}

unanswered=0
# ask COMMAND...: sets `answer`; ABSENT where the cloud says that there is no such thing, UNKNOWN where it
# says nothing, which is borne a while: networks fail.
ask() {
  local errors
  if answer=$("$@" 2>"$scratch"); then
    unanswered=0
    return
  fi
  errors=$(<"$scratch")
  if [[ $errors == *NOT_FOUND:* ]]; then
    answer=ABSENT unanswered=0
  else
    answer=UNKNOWN unanswered=$((unanswered + 1))
    [[ $unanswered -lt 20 ]] || give_up "no answer from gcloud, 20 times in a row: ${errors##*$'\n'}"
  fi
}

# Waits for the request's end; whether the TPU is there.
await_active() {
  local before=''
  if [[ $dry_run == true ]]; then
    execute "${describe[@]}"
    return
  fi
  while :; do
    ask "${describe[@]}"
    [[ $answer == "$before" ]] || say "$name: $answer"
    before=$answer
    case $answer in
      ACTIVE) return 0 ;;
      FAILED | SUSPENDING | SUSPENDED | DELETING | ABSENT) return 1 ;;
    esac
    sleep "$poll"
  done
}

create() {
  local more=()
  [[ $spot == false ]] || more+=(--spot)
  [[ -z $valid_until ]] || more+=(--valid-until-duration="$valid_until")
  execute "${queued[@]}" create "$name" --node-id="$name" "${place[@]}" --accelerator-type="$accelerator" \
    --runtime-version="$runtime" ${more[@]+"${more[@]}"} ${create_flags[@]+"${create_flags[@]}"} &&
    await_active
}

# What git knows or does not ignore; without git, what a run needs.
# shellcheck disable=SC2016 # the inner shell expands it
pack='set -euo pipefail
export COPYFILE_DISABLE=1 # no files about files from a Mac
cd "$1"
{ git ls-files -z --cached --others --exclude-standard 2>/dev/null ||
  printf "%s\0" bert_jax configs launch pyproject.toml requirements*.txt; } |
  while IFS= read -r -d "" file; do [[ ! -e $file ]] || printf "%s\0" "$file"; done |
  tar -czf "$2" --null -T -'

install() {
  local archive=${XDG_CACHE_HOME:-$HOME/.cache}/bert_jax/launch/$name.tar.gz
  execute mkdir -p "${archive%/*}" &&
    execute bash -c "$pack" pack "$root" "$archive" &&
    execute "${vm[@]}" scp "$archive" "$name:bert_jax.tar.gz" "${place[@]}" \
      ${connect_flags[@]+"${connect_flags[@]}"} --worker=all &&
    on_workers all bash -c "mkdir -p bert_jax && tar -xzf bert_jax.tar.gz -C bert_jax" &&
    on_workers all "${on_host[@]}" install
}

start() { on_workers all "${on_host[@]}" start "${arguments[@]}"; }

# shellcheck source=launch/tpu_watch.sh
source "$root/launch/tpu_watch.sh"

tensorboard() {
  # A terminal there, so that ^C here ends it.
  execute "${vm[@]}" ssh "$name" "${place[@]}" ${connect_flags[@]+"${connect_flags[@]}"} --worker=0 \
    --command="$(quoted "${on_host[@]}" tensorboard --logdir="$workdir" --host=localhost --port=6006)" \
    -- -t -L "$bind:$port:localhost:6006"
}

delete() {
  local reply=''
  if [[ $yes == false && $dry_run == false ]]; then
    echo "This deletes $name in project $project, zone $zone, and all that lies on its disks."
    read -r -p "Delete it? [y/N] " reply || true
    [[ $reply == y || $reply == yes ]] || give_up "nothing was deleted"
  fi
  execute "${remove[@]}"
}

scratch=$(mktemp)
trap 'rm -f "$scratch"' EXIT
case $command in
  create)
    create || give_up "$name is not there; why says $(quoted "${queued[@]}" describe "$name" "${place[@]}")"
    ;;
  install | watch | tensorboard | delete) "$command" ;;
  run) start ;;
  logs) on_workers "$worker" tail -n 200 -F bert_jax_run/log ;;
  stop) on_workers all "${on_host[@]}" stop "$grace" ;;
esac
