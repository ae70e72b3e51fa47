"""The page of a run and of several: curves, baselines, samples; in a browser, and against hostile text."""

import json
import re

import browser
import numpy as np
import pytest
import small
import tiny_models

from bert_jax import config as config_lib
from bert_jax.visual import chart, report, samples
from bert_jax.visual.chart import Curve

HOSTILE = '</style><script>document.title="taken"</script><img src=x onerror=alert(1)>&'


def made(folder, config, steps=40, loss=6.0, samples=None):
    """Writes what a run would have left."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(config_lib.to_json(config))
    lines = []
    for step in range(10, steps + 1, 10):
        values = {"loss": loss - step / 20, "mlm_loss": loss - step / 20, "mlm_accuracy": step / 100}
        rates = {"tokens_per_second": 1000.0, "learning_rate": 1e-3, "grad_norm": 2.0, "seconds": step / 2}
        lines.append({"step": step, "split": "train", **values, **rates})
        if step % 20 == 0:
            levels = {"unigram_cross_entropy": 5.5, "most_frequent_accuracy": 0.05, "seconds": step / 2}
            lines.append({"step": step, "split": "eval", **values, **levels})
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "metrics.jsonl").write_text(text + '{"step": 50, "spl')  # a kill may cut the last line off
    if samples:
        (folder / "samples.json").write_text(json.dumps(samples))
    return folder


def test_axes_have_round_numbers_that_hold_all():
    assert chart._ticks(0.0, 1.0) == [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert chart._ticks(4.13, 7.9) == [4.0, 5.0, 6.0, 7.0, 8.0]
    assert chart._ticks(3.0, 3.0) == [3.0]
    assert chart._ticks(-0.02, 0.03) == [-0.02, -0.01, 0.0, 0.01, 0.02, 0.03]
    assert [chart.short(x) for x in (0, 12_000, 3.4e6, 0.25, 1e-5)] == ["0", "12k", "3.4M", "0.25", "1e-05"]


def test_a_curve_is_where_its_numbers_say():
    svg = chart.draw([Curve("a", [(0, 0.0), (10, 1.0)])], [("level", 0.5)])
    path = re.search(r'class="curve c0" d="M([\d. L]+)"', svg)[1]
    (x0, y0), (x1, y1) = [map(float, p.split()) for p in path.split("L")]
    assert x0 < x1 and y0 > y1  # SVG counts downwards
    level = float(re.search(r'class="level" d="M\d+ ([\d.]+)H', svg)[1])
    assert level == pytest.approx((y0 + y1) / 2, abs=0.2)
    assert "level 0.5" in svg and "a: 1 at step 10" in svg


def test_gaps_and_numbers_that_are_none_leave_the_rest():
    svg = chart.draw([Curve("a", [(0, 1.0), (1, 2.0), (2, None), (3, float("nan")), (4, 3.0), (5, 1.0)])])
    assert svg.count('class="curve') == 2 and "nan" not in svg
    assert chart.draw([Curve("a", [])]) == "" == chart.draw([Curve("a", [(0, None)])])
    assert chart.draw([Curve("a", [(0, -1.0), (1, 0.0)])], log=True) == ""
    long = chart.draw([Curve("a", [(i, float(i % 7)) for i in range(100_000)])])
    assert len(long) < 200_000


def test_a_page_names_all_and_no_text_becomes_markup(tmp_path):
    config = small.config(tmp_path)
    config.data.text_key = HOSTILE
    said = {
        "tokens": [[HOSTILE, {"gold": HOSTILE, "guess": "b", "probability": 0.5}, {"gold": "c", "guess": "c",
                    "probability": 1.0}]],
        "answers": [{"text": HOSTILE, "gold": HOSTILE, "said": HOSTILE, "right": False}],
        "confusion": {"labels": [HOSTILE, "b"], "counts": [[3, 1], [0, 2]]},
    }  # fmt: skip
    (run,) = report.read(made(tmp_path / "run", config, samples=said))
    page = report.render([run])
    assert "<script" not in page and "<img" not in page and page.count("</style>") == 1
    assert "data.text_key" in page and "unigram cross entropy 5.5" in page
    assert page.count('class="right"') == 1 and page.count('class="wrong"') == 2
    assert ">3</td>" in page


def test_samples_are_the_text_with_what_was_asked_for(tmp_path):
    tokenizer = tiny_models.tokenizer(tmp_path)
    ids = tokenizer.encode("the cat sat on a mat").ids  # [CLS] the cat sat on a mat [SEP]
    batch = {
        "tokens": np.array([[*ids[:2], tokenizer.mask_id, *ids[3:], 0]]),
        "segment_ids": np.array([[1] * 8 + [0]]),
        "mlm_positions": np.array([[2, 5, 0]]), "mlm_labels": np.array([[ids[2], ids[5], 0]]),
        "mlm_weights": np.array([[1.0, 1.0, 0.0]]), "mlm_guesses": np.array([[ids[2], ids[3], 7]]),
        "mlm_shares": np.array([[0.75, 0.5, 0.1]]),
    }  # fmt: skip
    (row,) = samples.of_tokens(batch, "mlm", tokenizer)
    assert [piece for piece in row if isinstance(piece, str)] == ["the", "sat on", "mat"]
    assert [piece for piece in row if not isinstance(piece, str)] == [
        {"gold": "cat", "guess": "cat", "probability": 0.75},
        {"gold": "a", "guess": "sat", "probability": 0.5},
    ]  # fmt: skip
    # A left-to-right model says at each position what comes behind it.
    batch = {key.replace("mlm", "causal"): value for key, value in batch.items()}
    batch |= {"tokens": np.array([[*ids, 0]]), "causal_positions": np.array([[1, 4, 0]])}
    (again,) = samples.of_tokens(batch, "causal", tokenizer)
    assert again == row


def test_a_confusion_counts_every_example_once():
    found = samples.confusion(np.array([0, 0, 1, 2, 2]), np.array([0, 1, 1, 0, 2]), ("a", "b", "c"))
    assert found == {"labels": ["a", "b", "c"], "counts": [[1, 1, 0], [0, 1, 0], [1, 0, 1]]}
    assert samples.confusion(np.zeros(1, int), np.zeros(1, int), ("score",)) == {}


def test_runs_side_by_side_name_what_differs(tmp_path):
    runs = []
    for name, rate in (("a", 1e-3), ("b", 2e-3)):
        config = small.config(tmp_path)
        config.optimizer.learning_rate = rate
        runs += report.read(made(tmp_path / name, config, loss=6.0 + 100 * rate))
    page = report.render(runs)
    assert "Keys that differ: 1." in page and "optimizer.learning_rate" in page.split("<details>")[0]
    assert page.count('class="curve c0"') >= 2 and page.count('class="curve c1"') >= 2


def test_members_are_read_in_their_order(tmp_path):
    config = small.config(tmp_path)
    for number in (0, 2, 10):
        made(tmp_path / "sweep" / "members" / str(number), config)
    (tmp_path / "sweep" / "config.json").write_text(config_lib.to_json(config))
    assert [run.name.rsplit("/", 1)[1] for run in report.read(tmp_path / "sweep")] == ["0", "2", "10"]


def test_the_command(tmp_path):
    made(tmp_path / "run", small.config(tmp_path))
    done = tiny_models.run(tmp_path, "report", "run")
    assert done.returncode == 0, done.stderr.decode()
    assert (tmp_path / "run" / "report.html").read_text().startswith("<!doctype html>")
    done = tiny_models.run(tmp_path, "report", "run", "run", "--output=both.html")
    assert done.returncode == 0 and (tmp_path / "both.html").exists()
    done = tiny_models.run(tmp_path, "report", "run", "--output", "again.html", "run")
    assert done.returncode == 0 and (tmp_path / "again.html").exists()
    for arguments, said in (
        ([], b"error: name at least one workdir"),
        (["none"], b"error: none holds no run"),
        (["run", "--output=none/a.html"], b"its directory does not exist"),
    ):
        done = tiny_models.run(tmp_path, "report", *arguments)
        assert done.returncode == 2 and said in done.stderr, done.stderr


def test_the_page_in_a_browser(tmp_path):
    said = {
        "confusion": {"labels": [f"label {i}" for i in range(12)], "counts": [[i] * 12 for i in range(12)]}
    }
    (run,) = report.read(made(tmp_path / "run", small.config(tmp_path), samples=said))
    file = tmp_path / "report.html"
    file.write_text(report.render([run]), encoding="utf-8")
    with browser.opened(file, width=360, height=740) as driver:
        run = driver.execute_script
        assert run("return document.documentElement.scrollWidth") <= 360  # wide tables scroll by themselves
        assert run("return document.querySelectorAll('svg').length") >= 4
        for box in run(
            "return Array.from(document.querySelectorAll('svg')).map(s => s.getBoundingClientRect())"
        ):
            assert box["width"] > 200 and box["height"] > 90
        for box in run(
            "return Array.from(document.querySelectorAll('svg text')).map(t => t.getBoundingClientRect())"
        ):
            assert box["height"] > 8 and box["left"] >= 16  # readable, and inside
