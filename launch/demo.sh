#!/usr/bin/env bash
# Trains configs/tiny.py on the text that Python itself carries into runs/demo, and shows what came of it.
# Needs Python 3.11 to 3.13 and the network for the first set-up.
#
#   bash launch/demo.sh [flags of bert_jax.main, such as --config.train.steps=50]
set -euo pipefail
# shellcheck source=launch/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
# shellcheck source=launch/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
set_up

workdir=$(workdir_of "$@")
workdir=${workdir:-runs/demo}

if [[ $# -eq 0 && -e $workdir/result.json ]]; then
  echo "$workdir is complete already; remove it to train again"
else
  "$python" -m bert_jax.main --config=configs/tiny.py --workdir="$workdir" "$@"
fi

"$python" - "$workdir" <<'PYTHON'
import json
import pathlib
import sys

workdir = pathlib.Path(sys.argv[1])
result = json.loads((workdir / "result.json").read_text())
print("\nReached:")
for key, value in result.items():
    if isinstance(value, float):
        value = f"{value:.4g}"
    if isinstance(value, str | int):
        print(f"  {key:28} {value}")
print(f"\nResults lie in {workdir.resolve()}:")
names = {
    "result.json": "the numbers above",
    "metrics.jsonl": "a line for each step that was logged",
    "report.html": "the run's page; open it in a browser",
    "checkpoints": "what a run is continued from",
}
for name, meaning in names.items():
    if (workdir / name).exists():
        print(f"  {name:14} {meaning}")
PYTHON

echo
echo "A filled [MASK]:"
echo "This is [MASK] example." |
  "$python" -m bert_jax.predict --model="$workdir" --input=- --output=-

echo
echo "For the commands of the README and of docs/: source $venv/bin/activate"
