"""Each reader on bytes that are nearly good: it reads them, or refuses them by an error told in a line.

`tests/fuzz/campaign.py` does the same for as long as it is asked to, guided by coverage.
"""

import pathlib
import random
import sys

import hypothesis
import pytest
from hypothesis import strategies as st

sys.path.append(str(pathlib.Path(__file__).parent / "fuzz"))
import mutation
import readers

FEW = hypothesis.settings(
    max_examples=30, deadline=None, derandomize=True, database=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)  # fmt: skip
NAMES = (
    "text", "vocab.txt", "spiece.model", "tokenizer.json", "vocab.json", "tokenizer_config.json",
    "tokenizer_config.json of bytes", "special_tokens_map.json of bytes", "added_tokens.json of bytes",
    "huggingface config", "safetensors", "safetensors index", "model.json", "config.json", "shards.json",
    "shard", "metrics.jsonl", "result.json", "about.json", "samples.json", "task.json", "spikes.json",
    "checkpoint record", "lines", "lines.gz", "corpus",
    "corpus jsonl", "jsonl", "csv", "tsv", "conll", "squad", "superglue", "nbest moses", "nbest jsonl",
    "blimp",
)  # fmt: skip


@pytest.fixture(scope="module")
def known() -> dict[str, readers.Reader]:
    return readers.readers()


def test_every_reader_is_tried(known: dict[str, readers.Reader]) -> None:
    assert {*NAMES, "tensorflow 1 index"} == {*known}
    # What it begins from is good, or changes of it would go no further than the first check.
    refused = [n for n, r in known.items() if "read" not in {readers.tried(r, seed) for seed in r.seeds}]
    assert refused == ["tensorflow 1 index"]  # which begins with one array of a model's many
    configs = known["huggingface config"]
    assert {readers.tried(configs, seed) for seed in configs.seeds} == {"read"}


@pytest.mark.parametrize("name", NAMES)
def test_bytes_are_read_or_refused(name: str, known: dict[str, readers.Reader]) -> None:
    reader = known[name]

    @FEW
    @hypothesis.given(st.sampled_from(reader.seeds), st.integers(0, 2**32))
    def nearly_good(seed: bytes, chance: int) -> None:
        readers.tried(reader, mutation.mutated(seed, random.Random(chance)))

    @FEW
    @hypothesis.given(st.binary(max_size=200))
    def any_bytes(data: bytes) -> None:
        readers.tried(reader, data)

    nearly_good()
    any_bytes()


@pytest.mark.parametrize("name", NAMES)
def test_another_value_in_each_place(name: str, known: dict[str, readers.Reader]) -> None:
    for seed in known[name].seeds:
        for data in mutation.everywhere(seed, (None, True, -1, 10**400, "a", [[]], {"a": 1})):
            readers.tried(known[name], data)


@FEW
@hypothesis.given(st.text(max_size=80), st.text(max_size=20))
def test_any_text_is_encoded(known: dict[str, readers.Reader], text: str, more: str) -> None:
    data = f"{text} {more}".encode("utf-8", "surrogatepass")
    assert readers.tried(known["text"], data) == "read"
