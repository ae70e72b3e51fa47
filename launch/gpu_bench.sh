#!/usr/bin/env bash
# Measures BERT-base's train step on this machine's GPU, in bfloat16 with rows of 512: attention over all pairs
# at once, in blocks, and by cuDNN, which drops no weights, so that all are measured without; then the first two
# with the published dropout. A JSON file each, with tokens a second and the share of the GPU's peak.
# Needs Python 3.11 to 3.13, the network for the first set-up (about 8 GB), and some 10 minutes.
#
#   bash launch/gpu_bench.sh [--output=DIRECTORY] [--dry-run] [-- flags of bert_jax.bench, such as --rounds=3]
#
# The results go to runs/gpu, or to DIRECTORY. --dry-run prints the commands, and runs none.
set -euo pipefail
# shellcheck source=launch/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

output=runs/gpu arguments=()
set_flag() { output=$value; }
read_flags --output "" "$@"

# shellcheck source=launch/setup.sh
source "$root/launch/setup.sh"
if [[ $dry_run == false ]]; then
  set_up_gpu
  "$python" -c 'import jax; jax.devices("gpu")' &>/dev/null ||
    fail "JAX finds no GPU here: is one in the list of nvidia-smi?"
  mkdir -p "$output"
fi

for dropout in 0.0 0.1; do
  for kernel in dense blocks cudnn; do
    [[ $kernel == cudnn && $dropout != 0.0 ]] && continue
    execute "$python" -m bert_jax.bench --config=configs/bench.py:base \
      --output="$output/$kernel-dropout-$dropout.json" \
      --config.data.seq_len=512 --config.train.batch_size=64 --config.objective.mlm.max_predictions=76 \
      --config.model.dtype=bfloat16 --config.model.scan=True --config.model.attention_dropout="$dropout" \
      --config.model.attention_kernel="$kernel" ${arguments[@]+"${arguments[@]}"}
  done
done
