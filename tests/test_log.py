"""What a run says of itself: lines that people read, and metrics.jsonl."""

import io
import json
import math
import pathlib
import sys

import pytest

from bert_jax import workdir
from bert_jax.log import Log, duration


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (41.6, "42 s"),
        (200, "3 min 20 s"),
        (3599.6, "1 h 0 min"),
        (18_600, "5 h 10 min"),
        (12.5 * 86_400, "12.5 days"),
        (math.inf, "unknown"),
    ],
)
def test_times_are_said_as_people_say_them(seconds: float, said: str) -> None:
    assert duration(seconds) == said


def test_a_line_says_the_shares_of_few_classes_and_the_file_has_all(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = Log(tmp_path, 0, 10, writes=True)
    with caplog.at_level("INFO"):
        log.write(5, "eval", {"loss": 0.25, "accuracy": 0.5, **{f"predicted_share_{n}": 0.1 for n in "ab"}})
        log.write(6, "eval", {"loss": math.nan, **{f"predicted_share_{n}": 0.05 for n in range(20)}})
    log.close()
    first, second = (record.getMessage() for record in caplog.records)
    assert first == "eval 5/10, loss 0.25, accuracy 0.5, predicted share a 0.1, predicted share b 0.1"
    assert second == "eval 6/10, loss nan"
    lines = workdir.read_metrics(tmp_path)
    assert lines[0]["predicted_share_b"] == 0.1 and len(lines[1]) == 4 + 20
    assert lines[1]["loss"] is None


def test_on_a_terminal_lines_stand_above_a_bar(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stderr", Terminal())
    log = Log(tmp_path, 2, 4, writes=True)
    log.advance()
    log.write(
        3, "train", {"loss": 1.5, "tokens_per_second": 1234.5, "mfu": 0.25, "learning_rate": 1e-4}, left=61
    )
    log.advance()
    log.close()
    said = sys.stderr.getvalue()
    assert "train 3/4, loss 1.5, 1,234 tokens/s, MFU 25.0%, lr 1.00e-04, 1 min 1 s left\n" in said
    assert "4/4" in said
    assert json.loads((tmp_path / workdir.METRICS).read_text())["mfu"] == 0.25


def test_what_was_logged_behind_the_step_that_is_gone_on_from_is_dropped(tmp_path: pathlib.Path) -> None:
    log = Log(tmp_path, 0, 4, writes=True)
    for step in (1, 2, 3):
        log.write(step, "train", {"loss": float(step)})
    log.close()
    again = Log(tmp_path, 2, 4, writes=True)
    assert again.seconds_before == workdir.read_metrics(tmp_path)[1]["seconds"]
    again.close()
    assert [line["step"] for line in workdir.read_metrics(tmp_path)] == [1, 2]
