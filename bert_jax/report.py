"""Writes the page of a run, or of several side by side: curves, baselines, samples, config, machine.

Training writes report.html into the workdir at every evaluation; this command writes it anew, or compares
runs. A workdir with several members (sweep.seeds) shows each of them.

    python -m bert_jax.report runs/a runs/b --output=comparison.html
"""

from __future__ import annotations

import os

from absl import flags as absl_flags
from absl import logging

from bert_jax import flags, paths, workdir
from bert_jax.visual import report

_OUTPUT = absl_flags.DEFINE_string(
    "output", "", "The HTML file; empty: report.html in the run's workdir, or here if there are several."
)


def main(directories: list[str]) -> None:
    """Reads the workdirs and writes the page."""
    if not directories:
        raise flags.UsageError("name at least one workdir: python -m bert_jax.report DIR [DIR ...]")
    runs = [run for directory in directories for run in report.read(directory)]
    if not runs:
        raise report.ReportError(f"{directories[0]} holds no run that has begun")
    output = _OUTPUT.value
    if not output:
        output = os.path.join(directories[0], workdir.REPORT) if len(directories) == 1 else workdir.REPORT
    workdir.write(paths.to_write(output, ends=".html"), report.render(runs))
    logging.info("%s: open it in a browser", output)


if __name__ == "__main__":
    flags.run(main, names=True)
