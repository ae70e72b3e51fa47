# Sourced by the other scripts: goes to the repository, and gives
#   venv            the virtual environment: $BERT_JAX_VENV, or .venv
#   set_up          makes it with requirements.txt; what is there and up to date is used again
#   set_up_tpu      makes it with what a TPU needs too
#   set_up_gpu      the same for a GPU
#   set_up_tests    set_up, and what the tests need
#   set_up_parity   another one, $BERT_JAX_PARITY_VENV or .venv-parity, with the systems compared with too
# PYTHON=/path/to/python takes that interpreter.
# shellcheck shell=bash

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
venv=${BERT_JAX_VENV:-$PWD/.venv}
python=$venv/bin/python
# Another environment's packages must not be found before this one's.
unset PYTHONPATH PYTHONHOME VIRTUAL_ENV

# find_python [CHECK]: sets `found` to an interpreter that runs, and that CHECK takes: a name such as
# python3.12 may be a shim that answers "command not found".
find_python() {
  local check=${1:-true} candidates=() tried=() candidate answer
  if [[ -n ${PYTHON:-} ]]; then
    candidates=("$PYTHON")
  else
    local version
    for version in 3.12 3.13 3.11 3; do
      while IFS= read -r candidate; do
        candidates+=("$candidate")
      done < <(type -ap "python$version"; compgen -G "$HOME/.pyenv/versions/$version.*/bin/python")
    done
  fi
  for candidate in ${candidates[@]+"${candidates[@]}"}; do
    if ! answer=$("$candidate" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null); then
      tried+=("$candidate (does not run)")
    elif [[ ! $answer =~ ^3\.1[123]$ ]]; then
      tried+=("$candidate (is Python $answer)")
    elif ! "$candidate" -c 'import venv, ensurepip' 2>/dev/null; then
      tried+=("$candidate (lacks venv: install python$answer-venv)")
    elif ! "$check" "$candidate"; then
      tried+=("$candidate (is not what $check asks for)")
    else
      found=$candidate
      return
    fi
  done
  {
    echo "error: no Python 3.11, 3.12 or 3.13 that runs; name one by PYTHON=/path/to/python. Tried:"
    printf '  %s\n' "${tried[@]:-none on the PATH}"
  } >&2
  exit 1
}

# pip_install ARGUMENTS: a dot a package, and pip's own words only where it fails.
pip_install() {
  local log=$venv/install.log
  if ! "$python" -m pip install --disable-pip-version-check --progress-bar off "$@" 2>&1 |
    tee "$log" | awk '/^Collecting/ { printf "."; fflush() } END { print "" }'; then
    tail -n 20 "$log" >&2
    echo "error: pip install $* failed; all of its words are in $log" >&2
    exit 1
  fi
}

# The stamp of what is to be installed: the contents of the named files, for the environment's Python.
stamp_of() { echo "$(cat "$@" | cksum) $("${PYTHON:-$python}" -V 2>&1)"; }

# make_venv SIZE CHECK REQUIREMENTS...: makes `venv` with what the files name, unless it is there and up to
# date, by an interpreter that CHECK takes, else by any that runs.
make_venv() {
  set -o pipefail
  local size=$1 check=$2 stamp=$venv/.bert_jax files=("${@:3}") file found
  # The stamp is empty while something is being installed.
  if [[ -s $stamp ]] && "$python" -c '' 2>/dev/null && [[ $(<"$stamp") == "$(stamp_of "${files[@]}")" ]]; then
    return
  fi
  if [[ -e $venv && ! -e $stamp && -n $(ls -A "$venv") ]]; then
    echo "error: $venv was not made by these scripts: remove it, or name another place by BERT_JAX_VENV" \
      "or BERT_JAX_PARITY_VENV" >&2
    exit 1
  fi
  found=$(find_python "$check" &>/dev/null && echo "$found") || find_python
  echo "Making $venv with $("$found" -V) ($found); about $size"
  rm -rf "$venv"
  mkdir -p "$venv"
  : >"$stamp"
  "$found" -m venv "$venv" || exit 1
  local arguments=()
  for file in "${files[@]}"; do
    arguments+=(-r "$file")
  done
  pip_install "${arguments[@]}"
  stamp_of "${files[@]}" >"$stamp"
}

set_up() {
  make_venv "2.5 GB" true requirements.txt
}

set_up_tpu() {
  make_venv "3 GB" true requirements.txt requirements-tpu.txt
}

set_up_gpu() {
  make_venv "8 GB" true requirements.txt requirements-gpu.txt
}

add_tests() {
  local stamp=$venv/.bert_jax-test wanted
  wanted=$(stamp_of requirements-test.txt requirements-test-nodeps.txt)
  [[ -s $stamp && $(<"$stamp") == "$wanted" ]] && return
  echo "Installing what the tests need"
  pip_install -r requirements-test.txt
  pip_install --no-deps -r requirements-test-nodeps.txt
  echo "$wanted" >"$stamp"
}

set_up_tests() {
  set_up
  add_tests
}

# Whether pip finds, for an interpreter, a build of PyTorch without CUDA; it downloads nothing large.
has_cpu_torch() {
  local version
  version=$(sed -n 's/^torch==//p' requirements-parity.txt)
  "$1" -m pip install --disable-pip-version-check --dry-run --quiet --no-deps "torch==$version+cpu" &>/dev/null
}

set_up_parity() {
  venv=${BERT_JAX_PARITY_VENV:-$PWD/.venv-parity}
  python=$venv/bin/python
  # An index or a folder of wheels may have the build for CPU for one version of Python only.
  make_venv "4 GB, and several more where pip finds no PyTorch for CPU" has_cpu_torch \
    requirements.txt requirements-parity.txt
  add_tests
}
