# Sourced by tpu.sh, slurm.sh and gke.sh: flags, quoting, errors of one line. Plain enough for the bash 3.2
# of a Mac.
# shellcheck shell=bash

# shellcheck disable=SC2034 # by those who source this
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
dry_run=false

# What the user can mend ends with 2, as in the Python commands; what went wrong elsewhere with 1.
fail() {
  printf 'error: %s\n' "${*//$'\n'/ }" >&2
  exit 2
}

give_up() {
  printf 'error: %s\n' "${*//$'\n'/ }" >&2
  exit 1
}

# Prints the comment that a script begins with.
help() {
  sed -n '2,${
    /^#/!q
    s/^# \{0,1\}//p
  }' "$1"
}

# read_flag ARGUMENT VALUED SWITCHES: sets `flag` and `value`, or refuses what is in neither list.
read_flag() {
  flag=${1%%=*} value=${1#*=}
  case " $2 " in
    *" $flag "*)
      [[ $1 == *=* && -n $value ]] || fail "$flag needs a value: $flag=VALUE"
      return
      ;;
  esac
  case " $3 " in
    *" $flag "*)
      [[ $1 != *=* ]] || fail "$flag takes no value"
      return
      ;;
  esac
  case $1 in
    -*) fail "unknown flag $flag; see --help" ;;
    *) fail "unexpected argument $1: write --FLAG=VALUE; see --help" ;;
  esac
}

# read_flags VALUED SWITCHES ARGUMENTS...: calls set_flag, which the script defines, for each flag, sets dry_run,
# answers --help, and leaves in `arguments` what follows --.
read_flags() {
  local valued=$1 switches="$2 --dry-run --help"
  shift 2
  while [[ $# -gt 0 ]]; do
    case $1 in
      --)
        shift
        # shellcheck disable=SC2034 # by those who source this
        arguments=("$@")
        return
        ;;
      -h) set -- --help "${@:2}" ;;
    esac
    read_flag "$1" "$valued" "$switches"
    case $flag in
      --dry-run) dry_run=true ;;
      --help)
        help "$0"
        exit
        ;;
      *) set_flag ;;
    esac
    shift
  done
}

# must_match FLAG VALUE PATTERN RULE: values end up in commands, scripts and manifests of other systems.
must_match() {
  local LC_ALL=C
  [[ $2 =~ ^($3)$ ]] || fail "$1=$2: it must be $4"
}

# quoted WORDS...: prints the words so that any POSIX shell reads the same ones again.
quoted() {
  local LC_ALL=C word out separator=''
  for word in "$@"; do
    case $word in
      '' | *[!A-Za-z0-9_@%+=:,./-]*)
        out=\'
        while [[ $word == *\'* ]]; do
          out+="${word%%\'*}'\\''"
          word=${word#*\'}
        done
        word="$out$word'"
        ;;
    esac
    printf '%s%s' "$separator" "$word"
    separator=' '
  done
}

# execute COMMAND...: runs it; with --dry-run prints it instead, as a line of shell.
execute() {
  if [[ $dry_run == true ]]; then
    quoted "$@"
    echo
  else
    "$@"
  fi
}

# workdir_of ARGUMENTS...: prints what bert_jax.main would take as --workdir; nothing if there is none.
workdir_of() {
  local before='' found='' argument
  for argument in "$@"; do
    case $before in --workdir | -workdir) found=$argument ;; esac
    case $argument in --workdir=* | -workdir=*) found=${argument#*=} ;; esac
    before=$argument
  done
  printf '%s' "$found"
}
