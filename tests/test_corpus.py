"""Reading text: sources, documents, paragraphs and sentences; what cannot be read is named."""

import gzip
import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from ml_collections import ConfigDict

from bert_jax import config as config_lib
from bert_jax.data import corpus, files
from bert_jax.data.sentences import sentences


def _config(**data: object) -> ConfigDict:
    config = config_lib.default()
    config.data.update(data)
    return config


def _documents(config: ConfigDict) -> list[list[str]]:
    found: list[list[str]] = []
    for paragraph in corpus.paragraphs(config):
        if paragraph.new_document:
            found.append([])
        found[-1].append(paragraph.text)
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ('"Is it?" he said. "Yes!" she said.', ['"Is it?" he said.', '"Yes!" she said.']),
        ("He left. (It rained.) [Two] came.", ["He left.", "(It rained.)", "[Two] came."]),
        ("Mr. Smith met Dr. Who on St. John's.", ["Mr. Smith met Dr. Who on St. John's."]),
        ("Birds, e.g. Owls, i.e. Strix, etc. They fly.", ["Birds, e.g. Owls, i.e. Strix, etc. They fly."]),
        ("J. R. Smith of the U.S. Army. Yes.", ["J. R. Smith of the U.S. Army.", "Yes."]),
        ("See No. 5 and p. 7. No. He did not.", ["See No. 5 and p. 7.", "No.", "He did not."]),
        ("In 1990. 5 came. pi is 3.14 or so.", ["In 1990.", "5 came. pi is 3.14 or so."]),
        ("Well... Then. And... then.", ["Well...", "Then.", "And... then."]),
        ("a line\nbreak. Next\nline.", ["a line break.", "Next line."]),
        ("\u4f60\u597d\u3002\u6211\uff01\u771f", ["\u4f60\u597d\u3002", "\u6211\uff01", "\u771f"]),
        ("\u00c9t\u00e9. \u00c9cole \u00abOui.\u00bb \u00abNon.\u00bb", ["\u00c9t\u00e9.", "\u00c9cole \u00abOui.\u00bb", "\u00abNon.\u00bb"]),  # noqa: E501
        ("The cat . The dog .", ["The cat .", "The dog ."]),
        ("  ", []),
        ("...", ["..."]),
    ],
)  # fmt: skip
def test_the_sentence_rule(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected


def test_sentences_keep_all_text(test_data: pathlib.Path) -> None:
    text = (test_data / "corpus/books/Moby-Dick.md").read_text()[:300_000]
    found = [sentence for part in text.split("\n\n") for sentence in sentences(part)]
    assert "".join("".join(found).split()) == "".join(text.split())
    assert 1500 < len(found) < 4000


def test_plain_text(tmp_path: pathlib.Path) -> None:
    (tmp_path / "b.txt").write_text("\ufeffFirst line\nsecond line\r\n\n  \n Third  \n")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "c.txt.gz").write_bytes(gzip.compress(b"# Zipped\n\nwords"))
    (tmp_path / "a.md").write_text("# Head *it* #\ntext _of_ **one**\n\n---\n\n- 2 * 3 a_b_c\n")
    (tmp_path / "empty.txt").write_text(" \n\n")
    (tmp_path / "image.png").write_bytes(b"\xff")
    assert _documents(_config(source="text", path=str(tmp_path))) == [
        ["Head it", "text of one", "- 2 * 3 a_b_c"],
        ["First line second line", "Third"],
        ["# Zipped", "words"],
    ]
    assert _documents(_config(source="text", path=str(tmp_path / "*.txt"))) == [
        ["First line second line", "Third"]
    ]
    assert _documents(_config(source="text", path=str(tmp_path / "**" / "c*"))) == [["# Zipped", "words"]]
    config = _config(source="text", path=str(tmp_path / "a.md"), eval_path=str(tmp_path / "b.txt"))
    assert [p.new_document for p in corpus.eval_paragraphs(config)] == [True, False]


def test_a_marker_starts_a_document(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "wiki.txt"
    path.write_text("\nlead\n = One = \n\n = = Part = = \n text\nmore\n = Two = \n")
    config = _config(source="text", path=str(path), document_marker=r"^ = [^=]+ = $")
    assert _documents(config) == [["lead"], ["= One =", "= = Part = = text more"], ["= Two ="]]
    with pytest.raises(corpus.CorpusError, match=r"data\.document_marker"):
        _documents(_config(source="text", path=str(path), document_marker="("))


def test_long_lines_and_paragraphs_are_cut(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "long.txt"
    word = "b\u00e9ta "
    path.write_text(word * 300_000 + "\n\nend\n" + "\u00e9" * 900_000)
    found = _documents(_config(source="text", path=str(path)))
    assert len(found) == 1
    assert max(map(len, found[0])) <= corpus.LONGEST
    assert (
        " ".join(found[0]).replace(" ", "") == (word * 300_000).replace(" ", "") + "end" + "\u00e9" * 900_000
    )
    path.write_text("line\n" * 100_000)
    found = _documents(_config(source="text", path=str(path)))
    assert max(map(len, found[0])) <= corpus.LONGEST
    assert sum(text.count("line") for text in found[0]) == 100_000
    path.write_text("A line of\ntext. And\nits end.\n" * 1000)
    found = _documents(_config(source="text", path=str(path)))
    assert {text[-8:] for text in found[0]} == {"its end."}
    assert all(corpus.LONG < len(text) < corpus.LONG + 40 for text in found[0][:-1])


def test_lines_are_numbered(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "lines.txt"
    path.write_bytes(b"ab " * 500_000 + b"\n2\n\n4")
    numbers = [
        number for number, text in files.lines(files.epath.Path(path), longest=1000) if "ab" not in text
    ]
    assert numbers == [2, 3, 4]
    assert {n for n, text in files.lines(files.epath.Path(path), longest=1000) if "ab" in text} == {1}


def test_what_is_no_text_is_named(tmp_path: pathlib.Path) -> None:
    def refused(pattern: str, **data: object) -> None:
        with pytest.raises(corpus.CorpusError, match=pattern):
            list(corpus.paragraphs(_config(**data)))

    (tmp_path / "latin.txt").write_bytes(b"x\n" * 600_000 + b"caf\xe9\n")
    refused(
        r"latin.txt, line 600001: not UTF-8 \(byte 0xe9\)", source="text", path=str(tmp_path / "latin.txt")
    )
    (tmp_path / "cut.txt").write_bytes(b"a\nb\xc3")
    refused("cut.txt, line 2: not UTF-8", source="text", path=str(tmp_path / "cut.txt"))
    (tmp_path / "half.txt.gz").write_bytes(gzip.compress(b"words " * 1000)[:-9])
    refused("half.txt.gz: not a whole gzip file", source="text", path=str(tmp_path / "half.txt.gz"))
    (tmp_path / "no.txt.gz").write_bytes(b"plain")
    refused("no.txt.gz: not a whole gzip file", source="text", path=str(tmp_path / "no.txt.gz"))
    refused("no such file or directory", source="text", path=str(tmp_path / "absent"))
    refused("no file matches", source="text", path=str(tmp_path / "*.none"))
    (tmp_path / "empty").mkdir()
    refused("no file in it ends in .txt", source="text", path=str(tmp_path / "empty"))
    (tmp_path / "empty" / "e.txt").write_text(" \n")
    refused("there is no text in it", source="text", path=str(tmp_path / "empty"))


def test_json_lines(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.jsonl"
    rows = [{"text": "One.\nStill one.\n\nTwo."}, {"text": " "}, {"text": "\u00e9", "id": 3}]
    path.write_text("\n".join(json.dumps(row) for row in rows) + "\n\n")
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(b'{"text": "Zipped"}'))
    assert _documents(_config(source="jsonl", path=str(tmp_path))) == [
        ["One. Still one.", "Two."], ["\u00e9"], ["Zipped"]
    ]  # fmt: skip

    def refused(pattern: str, content: str, **data: object) -> None:
        path.write_text(content)
        with pytest.raises(corpus.CorpusError, match=pattern):
            list(corpus.paragraphs(_config(source="jsonl", path=str(path), **data)))

    refused("a.jsonl, line 2: not JSON", '{"text": "a"}\n{"text": \n')
    refused("a.jsonl, line 3: no text under 'text' .its keys are body", '{"text": "a"}\n\n{"body": "b"}\n')
    refused("line 1: no text under 'body'", '{"text": "a"}\n', text_key="body")
    refused("line 1: no text under 'text' .no object", '["a"]\n')
    refused("line 1: no text under", '{"text": 3}\n')
    refused("line 1: a character that is no Unicode", '{"text": "\\ud800"}\n')


def test_tfds(tmp_path: pathlib.Path) -> None:
    import tensorflow_datasets as tfds

    info = tfds.core.DatasetInfo
    texts = [f"Text {i}.\n\nMore of {i}." for i in range(40)]

    class TinyText(tfds.core.GeneratorBasedBuilder):
        """Forty texts."""

        VERSION = tfds.core.Version("1.0.0")

        def _info(self) -> info:
            features = tfds.features.FeaturesDict({"body": tfds.features.Text(), "number": np.int64})
            return info(builder=self, features=features)

        def _split_generators(self, manager: object) -> dict:
            return {"train": self._rows(0, 30), "validation": self._rows(30, 40)}

        def _generate_examples(self) -> None:
            raise NotImplementedError

        def _rows(self, start: int, stop: int) -> object:
            for i in range(start, stop):
                yield i, {"body": texts[i], "number": i}

    TinyText(data_dir=tmp_path).download_and_prepare()
    data = {"source": "tfds", "path": "tiny_text", "tfds_dir": str(tmp_path), "text_key": "body"}
    config = _config(**data, eval_path="validation")
    found = _documents(config)
    assert sorted(found) == sorted([f"Text {i}.", f"More of {i}."] for i in range(30))
    assert found == _documents(config)
    held = [paragraph.text for paragraph in corpus.eval_paragraphs(config)]
    assert sorted(held[::2]) == sorted(f"Text {i}." for i in range(30, 40))
    assert corpus.fingerprint(config) == corpus.fingerprint(config)
    assert corpus.fingerprint(config) != corpus.fingerprint(_config(**data))
    for wrong, pattern in [
        ({"text_key": "text"}, "features of tiny_text are body, number"),
        ({"text_key": "number"}, "is int64 and no text"),
        ({"tfds_split": "dev"}, "has the splits train, validation"),
        ({"path": "no_such_dataset"}, "no_such_dataset"),
    ]:
        with pytest.raises(corpus.CorpusError, match=pattern):
            list(corpus.paragraphs(_config(**(data | wrong))))


def test_the_fingerprint_is_of_content(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "one" / "a.txt"
    path.parent.mkdir()
    path.write_text("some text")
    config = _config(source="text", path=str(path.parent))
    first = corpus.fingerprint(config)
    assert first[1] == 9
    path.parent.rename(tmp_path / "two")
    config.data.path = str(tmp_path / "two")
    assert corpus.fingerprint(config) == first
    (tmp_path / "two" / "a.txt").write_text("Some text")
    assert corpus.fingerprint(config) != first


def test_the_embedded_corpus(tmp_path: pathlib.Path) -> None:
    code = (
        "import sys, json\n"
        "from bert_jax.data import corpus, embedded\n"
        "from bert_jax import config as c\n"
        "config = c.default(); config.data.cache_dir = sys.argv[1]\n"
        "before = set(sys.modules)\n"
        "embedded.embedded_file(sys.argv[1])\n"
        "new = {name for name in set(sys.modules) - before if not name.startswith('_sysconfigdata')}\n"
        "found = list(corpus.paragraphs(config))\n"
        "size, documents = sum(len(p.text) for p in found), sum(p.new_document for p in found)\n"
        "print(json.dumps([sorted(new), size, documents]))"
    )
    run = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True)
    new, characters, documents = json.loads(run.stdout)
    assert new == []
    assert characters > 1_000_000
    assert documents > 300
    (cached,) = tmp_path.iterdir()
    assert cached.name.startswith("embedded-1-")
    stamp = cached.stat().st_mtime_ns
    config = _config(cache_dir=str(tmp_path))
    assert len(_documents(config)) == documents
    assert cached.stat().st_mtime_ns == stamp
