# Sourced by tpu.sh: waits for the end of a run, and starts it again where it or its TPU is gone.
# shellcheck shell=bash disable=SC2154 # its variables are tpu.sh's

# Sets `outcome` of the run on an active TPU: ended, running, stopped, wrong, gone, or unreachable.
look_at_run() {
  local states
  outcome=unreachable
  states=$("${look[@]}" 2>"$scratch") || return 0
  states=$(grep -o '^bert_jax: .*' <<<"$states") || return 0
  # The hosts may differ: what is wrong on one is wrong for all, and the others wait for one that is gone.
  if grep -qx 'bert_jax: ended 2' <<<"$states"; then
    outcome=wrong
  elif grep -qx 'bert_jax: stopped' <<<"$states"; then
    outcome=stopped
  elif grep -qvx -e 'bert_jax: running' -e 'bert_jax: ended 0' <<<"$states"; then
    outcome=gone
  elif grep -qx 'bert_jax: running' <<<"$states"; then
    outcome=running
  else
    outcome=ended
  fi
}

lacking=false
# renew WHAT: a new TPU where the old one is dead, else the same one; then the run again.
renew() {
  if [[ $1 == dead ]]; then
    # Where an earlier try deleted it and got no other, there is nothing to delete.
    [[ $lacking == true ]] || execute "${remove[@]}" || return 1
    lacking=true
    create || return 1
    lacking=false
  else
    on_workers all "${on_host[@]}" end 60 || true # hosts that wait for one that has left
  fi
  install && start
}

finish() { # CODE MESSAGE
  local left
  left="the TPU is still there, and billed: bash launch/tpu.sh delete $(quoted --name="$name" "${place[@]}")"
  if [[ $lacking == true ]]; then
    left="there is no TPU"
  elif [[ $delete_when_done == true ]]; then
    left="the TPU is deleted"
    "${remove[@]}" || left="the TPU could not be deleted, and is billed"
  fi
  [[ $1 -eq 0 ]] || give_up "$2; $left"
  say "$2; $left"
  exit 0
}

watch() {
  local pause=$backoff tried=0 unreached=0 before='' what
  if [[ $dry_run == true ]]; then
    echo "# until the run has ended:"
    execute "${describe[@]}"
    execute "${look[@]}"
    echo "# where no host answers:"
    execute "${describe_vm[@]}"
    echo "# where the run is gone, before it is installed and started again as below:"
    on_workers all "${on_host[@]}" end 60
    echo "# where the TPU was taken away:"
    renew dead
    [[ $delete_when_done == false ]] || { echo "# at the end:" && execute "${remove[@]}"; }
    return
  fi
  while :; do
    what='' outcome=''
    ask "${describe[@]}"
    case $answer in
      ABSENT)
        [[ $tried -gt 0 ]] || fail "there is no $name in $project, $zone: ask for it with create"
        [[ $lacking == true ]] || give_up "somebody deleted $name"
        what=dead
        ;;
      FAILED | SUSPENDED) what=dead ;;
      ACTIVE)
        look_at_run
        if [[ $outcome == unreachable ]]; then
          ask "${describe_vm[@]}"
          case $answer in PREEMPTED | TERMINATED | ABSENT) what=dead outcome="$answer" ;; esac
        fi
        ;;
    esac
    [[ $answer$outcome == "$before" ]] || say "$name: $answer${outcome:+, the run is $outcome}"
    before=$answer$outcome
    case $outcome in
      ended) finish 0 "the run has ended: $workdir/result.json" ;;
      wrong) finish 1 "the run refused its arguments or its data: see logs" ;;
      stopped) finish 1 "the run was stopped" ;;
      gone) what=gone ;;
      running) pause=$backoff ;;
    esac
    if [[ $outcome == unreachable ]]; then
      unreached=$((unreached + 1))
      # It may train on: a TPU is not deleted for a key or a network that fails here.
      [[ $unreached -lt 20 ]] || give_up "no host of $name answers, though it is there, and billed"
    else
      unreached=0
    fi
    if [[ -z $what ]]; then
      sleep "$poll"
      continue
    fi
    [[ $tried -lt $tries ]] || finish 1 "gave up after starting again $tries times"
    tried=$((tried + 1))
    say "starting again, $tried of $tries, in $pause s"
    sleep "$pause"
    pause=$((pause * 2 < 1800 ? pause * 2 : 1800))
    renew "$what" || say "that failed"
  done
}
