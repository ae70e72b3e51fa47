"""The page of a run, or of several side by side, from what their workdirs hold."""

from __future__ import annotations

import dataclasses
import html
import importlib.resources
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from etils import epath

from bert_jax import config as config_lib
from bert_jax import forms, jsonl
from bert_jax import workdir as workdir_lib
from bert_jax.visual import chart
from bert_jax.visual.chart import Curve, short

_STYLE = "report.css"
# How the names of guesses that need no model begin; what they are compared with is the rest of the name.
_BASELINES = ("unigram_", "most_frequent_", "majority_", "mean_score_", "always_", "all_", "no_answer_",
              "random_", "copy_", "unchanged_")  # fmt: skip
_OF_THE_STEP = ("step", "split", "seconds", "step_seconds", "row_length")
_SAMPLES = 12
_ASKED = {"gold": forms.TEXT, "guess": forms.TEXT, "probability": forms.NUMBER}
_PIECE = forms.Kind(
    "a text, or what was asked for and guessed",
    lambda value: (
        isinstance(value, str)
        or (isinstance(value, dict) and all(kind.fits(value.get(key)) for key, kind in _ASKED.items()))
    ),
)
_FORM_OF_SAMPLES = {
    "tokens?": [[_PIECE]],
    "answers?": [{"text": forms.TEXT, "gold": forms.TEXT, "said": forms.TEXT, "right?": forms.FLAG}],
    "confusion?": {"labels": [forms.TEXT], "counts": [[forms.COUNT]]},
}


class ReportError(ValueError):
    """A directory that holds no run."""


@dataclasses.dataclass(frozen=True)
class Run:
    """What a workdir says.

    Attributes:
      name: of the page.
      config: what it was started with, flat.
      lines: of metrics.jsonl.
      result: of result.json; None while it trains.
      about: machine, data and model (about.json).
      samples: what the model said of some rows at the last evaluation (samples.json).
    """

    name: str
    config: Mapping[str, Any]
    lines: Sequence[Mapping[str, Any]]
    result: Mapping[str, Any] | None
    about: Mapping[str, Any]
    samples: Mapping[str, Any]

    def curve(self, split: str, key: str) -> list[tuple[float, float | None]]:
        return [(line["step"], line[key]) for line in self.lines if line["split"] == split and key in line]

    @property
    def last_eval(self) -> Mapping[str, Any]:
        return next((line for line in reversed(self.lines) if line["split"] == "eval"), {})


def read(workdir: epath.PathLike) -> list[Run]:
    """Returns a workdir's run; of one with members, each of them.

    Raises:
      ValueError: it holds no run, or one of its files is damaged.
    """
    folder = epath.Path(workdir).expanduser()
    config = workdir_lib.read_config(folder) if folder.is_dir() else None
    members = folder / workdir_lib.MEMBERS
    if config is not None and not (folder / workdir_lib.METRICS).exists() and members.is_dir():
        names = sorted((m.name for m in members.iterdir() if (m / workdir_lib.CONFIG).exists()), key=_number)
        return [run for name in names for run in read(members / name)]
    if config is None:
        raise ReportError(f"{workdir} holds no run: name a workdir, which has a {workdir_lib.CONFIG}")

    def said(name: str, form: dict[str, Any]) -> dict[str, Any]:
        found = jsonl.read_object(folder / name) if (folder / name).exists() else {}
        forms.check(found, form, folder / name)
        return found

    samples = said(workdir_lib.SAMPLES, _FORM_OF_SAMPLES)
    if confusion := samples.get("confusion"):
        sizes = {len(confusion["labels"]), len(confusion["counts"]), *map(len, confusion["counts"])}
        if len(sizes) > 1 or 0 in sizes:
            raise ReportError(
                f"{folder / workdir_lib.SAMPLES}: confusion is no square of its labels: "
                "restore the file from a copy"
            )

    return [
        Run(
            name=str(workdir),
            config=config_lib.flatten(config),
            lines=workdir_lib.read_metrics(folder),
            result=workdir_lib.read_result(folder),
            about=said(workdir_lib.ABOUT, {}),
            samples=samples,
        )
    ]


def _number(name: str) -> tuple[int, str]:
    return (int(name), "") if name.isdigit() else (1 << 30, name)


def render(runs: Sequence[Run]) -> str:
    """Returns the page of one or more runs; it holds no script and needs nothing else."""
    style = (importlib.resources.files(__package__) / _STYLE).read_text(encoding="utf-8")
    title = runs[0].name if len(runs) == 1 else f"{len(runs)} runs"
    body = [f"<h1>{_text(title)}</h1>", f"<p>{_text(_state(runs))}</p>"]
    if len(runs) > 1:
        items = (f'<li class="c{i % chart.COLOURS}">{_text(run.name)}</li>' for i, run in enumerate(runs))
        body.append(f'<ol class="legend">{"".join(items)}</ol>')
    body += _charts(runs)
    body.append(_section("Reached", _results(runs)))
    for run in runs:
        where = f" of {run.name}" if len(runs) > 1 else ""
        body += _samples(run, where)
    body.append(_section("Config", _configs(runs)))
    body.append(_section("Machine, model and data", _about(runs)))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'; img-src data:\">"
        f'<link rel="icon" href="data:,"><title>{_text(title)}</title><style>{style}</style></head>'
        f"<body><main>{''.join(body)}</main></body></html>\n"
    )


def _state(runs: Sequence[Run]) -> str:
    if len(runs) > 1:
        done = sum(run.result is not None for run in runs)
        return f"{done} of {len(runs)} have ended. Written {time.strftime('%Y-%m-%d %H:%M:%S %Z')}."
    run = runs[0]
    step = run.lines[-1]["step"] if run.lines else 0
    what = run.config["task.name"] or "pretraining"
    ended = "has ended" if run.result is not None else "trains"
    return f"{what} {ended}; step {step:,}. Written {time.strftime('%Y-%m-%d %H:%M:%S %Z')}."


def _charts(runs: Sequence[Run]) -> list[str]:
    """Returns a section for each kind of curve that there is."""
    found: list[str] = []
    evals = _keys(runs, "eval")
    plain = [key for key in evals if _baseline_of(key) is None]
    chosen = ["loss", *(key for key in plain if key != "loss" and _is_worth(key, runs))]
    for key in chosen:
        curves = []
        for i, run in enumerate(runs):
            colour = i if len(runs) > 1 else 1
            train = run.curve("train", key)
            if train and len(runs) == 1:
                curves.append(Curve("training", train, 0, faint=True))
            curves.append(Curve("evaluation" if len(runs) == 1 else run.name, run.curve("eval", key), colour))
        levels = _levels(runs, key, evals)
        found.append(_chart(key, curves, levels))
    for key, log in (("tokens_per_second", False), ("learning_rate", False), ("grad_norm", True)):
        curves = [Curve(run.name, run.curve("train", key), i, faint=True) for i, run in enumerate(runs)]
        found.append(_chart(key, curves, [], log))
    return ['<div class="charts">', *found, "</div>"]


def _chart(key: str, curves: Sequence[Curve], levels: Sequence[tuple[str, float]], log: bool = False) -> str:
    drawn = chart.draw(curves, levels, log=log)
    return _section(_words(key), drawn) if drawn else ""


def _keys(runs: Sequence[Run], split: str) -> list[str]:
    keys: dict[str, None] = {}
    for run in runs:
        for line in run.lines:
            if line["split"] == split:
                keys |= dict.fromkeys(key for key in line if key not in _OF_THE_STEP)
    return list(keys)


def _is_worth(key: str, runs: Sequence[Run]) -> bool:
    """Whether a metric has a chart of its own: not one that says the loss again, or a class's share."""
    if key.startswith("predicted_share"):
        return False
    return any(run.curve("eval", key) and run.curve("eval", key) != run.curve("eval", "loss") for run in runs)


def _baseline_of(key: str) -> str | None:
    """Returns what a baseline's name is compared with, or None for what is no baseline."""
    for start in _BASELINES:
        if key.startswith(start) or f"_{start}" in key:
            return key.rsplit("_", 1)[-1]
    return None


def _levels(runs: Sequence[Run], key: str, evals: Iterable[str]) -> list[tuple[str, float]]:
    """Returns the baselines of a metric, as the first run's last evaluation has them."""
    last = runs[0].last_eval
    kind = "entropy" if key == "loss" or key.endswith("_loss") else key.rsplit("_", 1)[-1]
    group = key.rsplit("_", 1)[0] if "_" in key else ""
    levels = []
    for name in evals:
        if _baseline_of(name) != kind or last.get(name) is None:
            continue
        if kind == "entropy" and key.startswith("general_") != name.startswith("general_"):
            continue
        if group.startswith(("nsp", "sop", "rtd")) and "always" not in name:
            continue  # of tokens, not of pairs
        levels.append((_words(name), last[name]))
    return levels


def _results(runs: Sequence[Run]) -> str:
    keys = [key for key in _keys(runs, "eval") if any(run.last_eval.get(key) is not None for run in runs)]
    rows = []
    for key in keys:
        values = [run.last_eval.get(key) for run in runs]
        kind = ' class="baseline"' if _baseline_of(key) else ""
        cells = "".join(f"<td>{'' if v is None else f'{v:.4g}'}</td>" for v in values)
        rows.append(f"<tr{kind}><th>{_text(_words(key))}</th>{cells}</tr>")
    steps = "".join(f"<td>{short(run.lines[-1]['step']) if run.lines else ''}</td>" for run in runs)
    seconds = "".join(
        f"<td>{run.lines[-1].get('seconds') or 0:,.0f}</td>" if run.lines else "<td></td>" for run in runs
    )
    rows += [f"<tr><th>steps</th>{steps}</tr>", f"<tr><th>seconds</th>{seconds}</tr>"]
    return _table(rows, runs)


def _table(rows: Sequence[str], runs: Sequence[Run]) -> str:
    head = ""
    if len(runs) > 1:
        names = "".join(f'<td class="c{i % chart.COLOURS}">{_text(r.name)}</td>' for i, r in enumerate(runs))
        head = f"<tr><th></th>{names}</tr>"
    return f'<div class="wide"><table>{head}{"".join(rows)}</table></div>'


def _samples(run: Run, where: str) -> list[str]:
    """Returns what the model said of some rows, right and wrong marked, and the confusion of classes."""
    found = []
    rows = [f"<li>{' '.join(map(_piece, row))}</li>" for row in (run.samples.get("tokens") or [])[:_SAMPLES]]
    if rows:
        said = "<p>What was asked for: green where the guess is right, else the guess is struck through.</p>"
        found.append(_section(f"Samples{where}", f'{said}<ul class="samples">{"".join(rows)}</ul>'))
    rows = []
    for answer in (run.samples.get("answers") or [])[:_SAMPLES]:
        said = _text(answer["said"])
        if answer.get("right") is not None:
            kind, mark = ("right", "&#10003;") if answer["right"] else ("wrong", "&#10007;")
            said = f'<span class="{kind}">{mark} {said}</span>'
        rows.append(
            f"<tr><td>{_text(answer['text'])}</td><td>{_text(answer['gold'])}</td><td>{said}</td></tr>"
        )
    if rows:
        head = "<tr><th>text</th><th>gold</th><th>said</th></tr>"
        table = f'<table class="answers">{head}{"".join(rows)}</table>'
        found.append(_section(f"Samples{where}", f'<div class="wide">{table}</div>'))
    confusion = run.samples.get("confusion")
    if confusion:
        labels, counts = confusion["labels"], confusion["counts"]
        most = max(1, *(max(row) for row in counts))
        head = "".join(f"<th>{_text(label)}</th>" for label in labels)
        lines = []
        for i, row in enumerate(counts):
            cells = "".join(
                f'<td class="{"hit" if i == j else "miss"}" style="--share:{n / most:.3f}">{n:,}</td>'
                for j, n in enumerate(row)
            )
            lines.append(f"<tr><th>{_text(labels[i])}</th>{cells}</tr>")
        said = "<p>Rows are what is right, columns what the model said, over the whole evaluation.</p>"
        table = f'<table class="confusion"><tr><th></th>{head}</tr>{"".join(lines)}</table>'
        found.append(_section(f"Confusion{where}", f'{said}<div class="wide">{table}</div>'))
    return found


def _piece(piece: str | Mapping[str, Any]) -> str:
    """Returns a piece of a sample: text as it is, or what was asked for and guessed."""
    if isinstance(piece, str):
        return _text(piece)
    gold, guess = piece["gold"], piece["guess"]
    kind, instead = ("right", "") if gold == guess else ("wrong", f"<s>{_text(guess)}</s>")
    title = _text(f"{guess}: {piece['probability']:.0%}")
    return f'<span class="{kind}" title="{title}">{_text(gold)}{instead}</span>'


def _configs(runs: Sequence[Run]) -> str:
    """Returns the keys that differ, between runs or from the defaults, and behind them all others."""
    default = config_lib.flatten(config_lib.default())
    shown, rest = [], []
    for key in default:
        values = [run.config.get(key) for run in runs]
        cells = "".join(f"<td>{_text(_value(v))}</td>" for v in values)
        line = f"<tr><th>{_text(key)}</th>{cells}</tr>"
        differs = any(v != values[0] for v in values) if len(runs) > 1 else values[0] != default[key]
        (shown if differs else rest).append(line)
    what = "differ" if len(runs) > 1 else "are not the default"
    return (
        f"<p>Keys that {what}: {len(shown)}.</p>{_table(shown, runs)}"
        f"<details><summary>the {len(rest)} others</summary>{_table(rest, runs)}</details>"
    )


def _about(runs: Sequence[Run]) -> str:
    keys = dict.fromkeys(key for run in runs for key in run.about)
    rows = []
    for key in keys:
        cells = "".join(f"<td>{_text(_value(run.about.get(key, '')))}</td>" for run in runs)
        rows.append(f"<tr><th>{_text(_words(key))}</th>{cells}</tr>")
    return _table(rows, runs) if rows else "<p>Not known: the run was made by an earlier version.</p>"


def _value(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return value if isinstance(value, str) else repr(value)


def _section(name: str, content: str) -> str:
    return f'<section class="card"><h2>{_text(name)}</h2>{content}</section>'


def _words(key: str) -> str:
    return key.replace("_", " ")


def _text(text: str) -> str:
    return html.escape(str(text))
