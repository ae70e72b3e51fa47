#!/usr/bin/env bash
# The part of tpu.sh that runs on each host of a TPU, in the copied checkout.
#
#   bash launch/tpu_worker.sh install            the environment, with requirements-tpu.txt
#   bash launch/tpu_worker.sh start ARGUMENTS    bert_jax.main in the background; its log outlives the session
#   bash launch/tpu_worker.sh state              one line: running, ended CODE, stopped, gone or idle
#   bash launch/tpu_worker.sh stop SECONDS       SIGTERM: the run saves and leaves; waits for it
#   bash launch/tpu_worker.sh end SECONDS        the same, but kills what has not left by then
#   bash launch/tpu_worker.sh tensorboard ARGUMENTS
set -euo pipefail
# shellcheck source=launch/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
here=$HOME/bert_jax_run # log, pid, and once it ended exit or stopped

# A process of that number may be another one after the host was started again.
alive() { [[ -s $here/pid ]] && grep -qzF bert_jax.main "/proc/$(<"$here/pid")/cmdline" 2>/dev/null; }

# The images of TPU VMs bring Python 3.10, which is too old.
find_or_fetch_python() {
  if [[ -n ${PYTHON:-} ]] || (find_python) 2>/dev/null; then
    return
  fi
  python3 -m pip install --user --quiet uv
  python3 -m uv python install 3.12
  PYTHON=$(python3 -m uv python find --system --managed-python 3.12)
  export PYTHON
}

# JAX's coordinator would listen on every address of host 0; this leaves the one that the others call.
bind_coordinator() {
  local address metadata=http://metadata.google.internal/computeMetadata/v1/instance/network-interfaces/0/ip
  if address=$(curl -fsS --max-time 5 -H 'Metadata-Flavor: Google' "$metadata" 2>/dev/null); then
    export JAX_COORDINATOR_PORT=8482 JAX_COORDINATOR_BIND_ADDRESS=$address:8482
  fi
}

# ask_to_leave SECONDS: whether nothing runs after SIGTERM and that time.
ask_to_leave() {
  local left=$(($1 * 5))
  alive || return 0
  kill -TERM "$(<"$here/pid")" 2>/dev/null || true
  while alive; do
    [[ $((left--)) -gt 0 ]] || return 1
    sleep 0.2
  done
}

command=${1:-}
shift || true
case $command in
  install)
    find_or_fetch_python
    set_up_tpu
    ;;
  start)
    if alive; then
      echo "error: a run is going on here (process $(<"$here/pid")): stop it first" >&2
      exit 2
    fi
    if ! "$python" -c '' 2>/dev/null; then
      echo "error: there is no environment on this host: install first" >&2
      exit 2
    fi
    mkdir -p "$here"
    rm -f "$here/pid" "$here/exit" "$here/stopped"
    bind_coordinator
    setsid bash launch/tpu_worker.sh run "$@" </dev/null >>"$here/log" 2>&1 &
    for _ in {1..50}; do
      if alive || [[ -e $here/exit ]]; then break; fi
      sleep 0.1
    done
    echo "started; its log is $here/log"
    ;;
  run) # by start, as the leader of a session of its own
    echo "bert_jax.main started $(date -u +%Y-%m-%dT%H:%M:%SZ)"
    "$python" -m bert_jax.main "$@" --distributed=auto &
    echo $! >"$here/pid"
    code=0
    wait $! || code=$?
    echo "bert_jax.main ended with $code"
    echo "$code" >"$here/exit.partial"
    mv "$here/exit.partial" "$here/exit"
    ;;
  state)
    if alive; then
      echo "bert_jax: running"
    elif [[ -e $here/stopped ]]; then
      echo "bert_jax: stopped"
    elif [[ -e $here/exit ]]; then
      echo "bert_jax: ended $(<"$here/exit")"
    elif [[ -e $here/pid ]]; then
      echo "bert_jax: gone"
    else
      echo "bert_jax: idle"
    fi
    ;;
  stop)
    mkdir -p "$here"
    touch "$here/stopped"
    ask_to_leave "$1" || {
      echo "error: the run has not left after $1 seconds" >&2
      exit 1
    }
    echo "nothing runs here"
    ;;
  end)
    ask_to_leave "$1" || kill -KILL "$(<"$here/pid")" 2>/dev/null || true
    ;;
  tensorboard)
    exec "$python" -m tensorboard.main "$@"
    ;;
  *)
    echo "error: unknown command $command" >&2
    exit 2
    ;;
esac
