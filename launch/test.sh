#!/usr/bin/env bash
# Runs the tests, in the same environment as launch/demo.sh and with what they need beside it.
# Needs Python 3.11 to 3.13 and the network for the first set-up.
#
#   bash launch/test.sh [arguments of pytest, such as -k masking or -m slow]
#   bash launch/test.sh --parity [arguments of pytest]   the comparison with PyTorch and transformers,
#                                                        in an environment of its own
set -euo pipefail
# shellcheck source=launch/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
if [[ ${1:-} == --parity ]]; then
  shift
  set_up_parity
  exec "$python" -m pytest tests/test_parity*.py tests/test_huggingface.py "$@"
fi
set_up_tests
exec "$python" -m pytest "$@"
