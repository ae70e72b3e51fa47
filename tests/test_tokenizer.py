"""Tokenizers: published values, offsets, odd text, files and their errors, training."""

import json
import logging
import multiprocessing
import os
import pickle
import random
import subprocess
import sys
import unicodedata

import numpy as np
import pytest

from bert_jax.data import tokenizer as tokenizers
from bert_jax.data import unigram, vocabulary, wordpiece

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TEXT = [
    "It was the best of times, it was the worst of times, it was the age of wisdom,",
    "it was the age of foolishness, it was the epoch of belief, it was the epoch of incredulity.",
    "Wiser heads believed; the wisest were unbelieving. [SEP] Café, naïve, 92000, times.",
] * 3
ODD = [
    "",
    "   \t\n",
    "\0",
    "a\0b\ufffdc",
    "e\u0301te\u0301 \u0345 \u1f80 \u0301",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 and \U0001f914?",
    "\u0627\u0644\u0639\u0631\u0628\u064a\u0629 \u0645\u064f\u062d\u0645\u064e\u0651\u062f",
    "\u4e2d\u6587\u5206\u8bcd mixed \u65e5\u672c\u8a9e",
    "\u0130\u0131\u1e9e \u039f\u0394\u039f\u03a3 \u03a3\u03b1\u03c2 \ufb01\u2167\u2026\u337f",
    "lone \ud800 and \udfff surrogates\ud83d",
    "``quoted'' \u2581 ' ' 92000, 12,345, \u3000 \xa0x\x85y\u2028z\x1c",
    "x" * 10_000 + " y",
    "before [MASK] after[SEP]again",
]


def plain(text: str) -> str:
    decomposed = unicodedata.normalize("NFKD", text.lower())
    return "".join(c for c in decomposed if not unicodedata.combining(c)).lower()


@pytest.fixture(scope="module")
def golden(test_data):
    return json.loads((test_data / "golden/vectors.json").read_text())


@pytest.fixture(scope="module")
def uncased(test_data):
    return tokenizers.load(test_data / "tokenizers/bert-base-uncased-vocab.txt")


@pytest.fixture(scope="module")
def cased(test_data):
    return tokenizers.load(test_data / "tokenizers/bert-base-cased-vocab.txt")


@pytest.fixture(scope="module")
def albert(test_data):
    return tokenizers.load(test_data / "tokenizers/hf_fixtures/spiece.model")


@pytest.fixture(scope="module")
def small():
    return tokenizers.train_wordpiece(TEXT, 120)


@pytest.fixture(scope="module")
def pieces():
    return tokenizers.train_sentencepiece(TEXT, 60)


def write_vocabulary(path, tokens):
    path.write_bytes("".join(f"{token}\n" for token in tokens).encode())
    return path


# Published values


def test_google_questions(test_data, uncased):
    with open(test_data / "golden/questions_wordpiece_dev.jsonl", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    assert len(rows) == 5285
    found = uncased.encode_batch([row["text"] for row in rows])
    assert [row for row, ids in zip(rows, found, strict=True) if ids != row["ids"]] == []


@pytest.mark.parametrize(
    ("name", "number"), [("bert_base_uncased__rust_tokenizers", 7), ("albert_base_v2__rust_tokenizers", 4)]
)
def test_ids_and_offsets_of_rust_tokenizers(golden, uncased, albert, name, number):
    tokenizer = uncased if name.startswith("bert") else albert
    cases = [case for case in golden[name]["cases"] if not case.get("differs_from_hf")]
    assert len(cases) == number
    for case in cases:
        encoding = tokenizer.encode(case["text"])
        assert encoding.ids == case["token_ids"], case["text"]
        assert encoding.offsets == [o and tuple(o) for o in case["char_offsets"]], case["text"]
        assert encoding.type_ids == [0] * len(encoding.ids)


def test_albert_integration(golden, albert):
    case = golden["albert_base_v2__hf_integration"]
    expected = case["expected"]
    rows = zip(case["texts"], expected["input_ids"], expected["attention_mask"], strict=True)
    for text, ids, mask in rows:
        assert albert.encode(text).ids == ids[: sum(mask)]


def test_albert_with_accents_and_numbers(golden, test_data):
    albert = tokenizers.load(test_data / "tokenizers/hf_fixtures/spiece.model", strip_accents=False)
    for case in golden["albert_fixture__hf_unit"]["cases"]:
        encoding = albert.encode(case["text"], special=False)
        assert encoding.tokens == case["tokens"]
        assert encoding.ids == case["ids"] == albert.encode_batch([case["text"]])[0]


def test_question_and_context(golden, uncased):
    case = golden["bert_qa_features__hf_swift"]
    encoding = uncased.encode(case["question"], case["context"])
    ids = [i for i in case["input_ids"] if i]
    assert encoding.ids == ids
    first = ids.index(uncased.sep_id) + 1
    assert encoding.type_ids == [0] * first + [1] * (len(ids) - first)


def test_google_bert(golden, tmp_path):
    case = golden["google_bert_tokenization_test"]
    full = case["full"]
    # The published vocabulary has no padding and mask; behind it they leave its ids as they are.
    path = write_vocabulary(tmp_path / "vocab.txt", full["vocab_tokens"] + ["[PAD]", "[MASK]"])
    encoding = tokenizers.load(path).encode(full["text"], special=False)
    assert (encoding.tokens, encoding.ids) == (full["tokens"], full["ids"])
    pieces = write_vocabulary(tmp_path / "p.txt", case["wordpiece"]["vocab_tokens"] + ["[PAD]", "[MASK]"])
    for text, tokens in case["wordpiece"]["cases"]:
        assert tokenizers.load(pieces, lowercase=False).encode(text, special=False).tokens == tokens
    for number, basic in enumerate(case["basic"]):
        words = write_vocabulary(tmp_path / f"{number}.txt", SPECIALS + sorted(set(basic["tokens"])))
        encoding = tokenizers.load(words, lowercase=basic["lower"]).encode(basic["text"], special=False)
        assert encoding.tokens == basic["tokens"]
    letters = tokenizers.load(write_vocabulary(tmp_path / "l.txt", [*SPECIALS, "a", "##a", "ab", "b"]))
    for space in case["is_whitespace"]["true"]:
        assert letters.encode(f"a{space}b", special=False).tokens == ["a", "b"]
    for control in case["is_control"]["true"]:
        assert letters.encode(f"a{control}b", special=False).tokens == ["ab"]
    for mark in case["is_punctuation"]["true"]:
        assert letters.encode(f"a{mark}b", special=False).tokens == ["a", "[UNK]", "b"]
    for other in case["is_punctuation"]["false"][:1]:
        assert letters.encode(f"a{other}", special=False).tokens == ["a", "##a"]


def test_tta_vocabulary(test_data):
    tta = tokenizers.load(test_data / "tokenizers/tta")
    assert (tta.vocab_size, tta.lowercase, tta.strip_accents) == (29530, True, True)
    assert (tta.pad_id, tta.unk_id, tta.mask_id) == (0, 2, 4)
    assert tta.encode("Hello").tokens == ["[CLS]", "hello", "[SEP]"]
    assert tta.special_ids.tolist() == list(range(7))
    tta = tokenizers.load(test_data / "tokenizers/tta/vocab-lower.sub-32k.txt", cls="[SOS]", sep="[EOS]")
    assert tta.encode("Hello", "wörld").tokens == ["[SOS]", "hello", "[EOS]", "world", "[EOS]"]
    assert (tta.cls_id, tta.sep_id) == (3, 1)


# Properties


@pytest.mark.parametrize("name", ["uncased", "cased", "albert", "small", "pieces"])
@pytest.mark.parametrize("text", ODD)
def test_odd_text(request, name, text):
    tokenizer = request.getfixturevalue(name)
    encoding = tokenizer.encode(text, special=False)
    assert encoding.ids == tokenizer.encode_batch([text])[0]
    assert len(encoding.ids) == len(encoding.tokens) == len(encoding.offsets) == len(encoding.type_ids)
    assert all(0 <= start < end <= len(text) for start, end in encoding.offsets)
    starts = [start for start, _ in encoding.offsets]
    assert starts == sorted(starts)
    assert isinstance(tokenizer.decode(encoding.ids), str)


@pytest.mark.parametrize("name", ["uncased", "albert"])
def test_offsets_slice_the_text_back(request, test_data, name):
    tokenizer = request.getfixturevalue(name)
    lines = (test_data / "corpus/books/Moby-Dick.md").read_text(encoding="utf-8").split("\n")
    texts = ["Ünï\u0301co\u0301de ﬁﬁ Straße, 5,000, İstanbul", *filter(None, lines[:800])]
    for text in texts:
        encoding = tokenizer.encode(text, special=False)
        for i, token, (start, end) in zip(encoding.ids, encoding.tokens, encoding.offsets, strict=True):
            if i == tokenizer.unk_id or token == unigram.SPACE:
                continue
            piece = token.removeprefix("##") if tokenizer.kind == "wordpiece" else token.strip(unigram.SPACE)
            part = plain(text[start:end]).strip()
            # A ligature is several letters in one character: its pieces share it.
            assert plain(piece) == part or (end - start == 1 and plain(piece) in part), (text, token)


def test_alignment_is_that_of_preprocessing():
    characters = [
        *"aBΣς \t'`,9\u0301\u0323\u0345\u2581éİß\u039f…㍿中ﬁ\u00b4\u1e9e\u2028\x1c",
        "``",
        "''",
        "  ",
    ]
    draw = random.Random(0)
    for _ in range(3000):
        text = "".join(draw.choices(characters, k=draw.randrange(12)))
        for lowercase in (False, True):
            for strip in (False, True):
                clean, starts, ends = unigram.preprocess_aligned(text, lowercase, strip)
                assert clean == unigram.preprocess(text, lowercase, strip), text
                assert len(clean) == len(starts) == len(ends)


def test_offsets_through_every_normalisation(albert, test_data):
    text = "  İs\u3000``it''  e\u0301te\u0301"
    encoding = albert.encode(text)
    assert encoding.tokens[1] == "▁is" and encoding.offsets[:2] == [None, (2, 4)]
    assert {text[s:e] for s, e in encoding.offsets[1:-1]} >= {"``", "''"}
    kept = tokenizers.load(test_data / "tokenizers/hf_fixtures/spiece.model", strip_accents=False)
    last = kept.encode("x e\u0301", special=False).offsets[-1]
    assert last == (2, 4)  # one composed character out of two


def test_decode(uncased, albert, small):
    text = "the dog ' s unwanted tail , and so on . is it ?"
    for tokenizer in (uncased, albert):
        ids = tokenizer.encode(text, "pair").ids
        alone = tokenizer.decode(tokenizer.encode(text, special=False).ids)
        assert tokenizer.decode([*ids, tokenizer.pad_id]) == f"{alone} pair"
    assert uncased.decode(uncased.encode(text).ids) == "the dog's unwanted tail, and so on. is it?"
    assert uncased.decode(uncased.encode("unaffable [MASK] \U0001f914").ids) == "unaffable [MASK] [UNK]"
    assert (
        albert.decode(albert.encode("Unaffable [MASK], falsé \U0001f914").ids)
        == "unaffable [MASK] , false <unk>"
    )
    for bad in (-1, small.vocab_size):
        with pytest.raises(ValueError, match="is not in"):
            small.decode([bad])
        with pytest.raises(ValueError, match="is not in"):
            small.token(bad)


@pytest.mark.parametrize("name", ["uncased", "albert"])
def test_decode_round_trip(request, test_data, name):
    tokenizer = request.getfixturevalue(name)
    lines = (test_data / "corpus/books/Moby-Dick.md").read_text(encoding="utf-8").split("\n")
    for ids in tokenizer.encode_batch([line for line in lines if line][:300]):
        if tokenizer.unk_id not in ids:
            assert tokenizer.encode_batch([tokenizer.decode(ids)])[0] == ids


def test_special_tokens_in_text_and_pairs(uncased, albert):
    for tokenizer in (uncased, albert):
        encoding = tokenizer.encode("x [MASK] y", "b")
        cls, sep, mask = tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id
        assert encoding.ids[0] == cls and encoding.ids[-1] == sep and encoding.ids.count(sep) == 2
        assert encoding.offsets[encoding.ids.index(mask)] == (2, 8)
        assert encoding.type_ids == [0] * (encoding.ids.index(sep) + 1) + [1, 1]
        assert encoding.offsets[-2:] == [(0, 1), None]
        assert tokenizer.encode("", "").ids == [cls, sep, sep]
        assert tokenizer.encode("", special=False).ids == []
    assert uncased.encode("Uglj[SEP]x").tokens == ["[CLS]", "u", "##gl", "##j", "[SEP]", "x", "[SEP]"]


def test_continues_and_specials(uncased, albert):
    for tokenizer, inside, start in ((uncased, "##ing", "the"), (albert, "ing", "▁the")):
        assert tokenizer.continues.shape == (tokenizer.vocab_size,) and tokenizer.continues.dtype == bool
        assert tokenizer.continues[tokenizer.id(inside)] and not tokenizer.continues[tokenizer.id(start)]
        assert not tokenizer.continues[tokenizer.special_ids].any()
        assert tokenizer.special_ids.dtype == np.int32
        assert tokenizer.token(tokenizer.id(inside)) == inside and tokenizer.id("no such token") is None
    assert uncased.special_ids.tolist() == [0, 100, 101, 102, 103]
    assert albert.special_ids.tolist() == [0, 1, 2, 3, 4]


# Case


def test_case_is_read_from_the_vocabulary_and_said(test_data, caplog):
    with caplog.at_level(logging.WARNING):
        cased = tokenizers.load(test_data / "tokenizers/bert-base-cased-vocab.txt")
    assert "taken as cased" in caplog.text
    assert not cased.lowercase and not cased.strip_accents
    assert cased.encode("Élan Paris", special=False).tokens[-1] == "Paris"
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        tokenizers.load(test_data / "tokenizers/bert-base-cased-vocab.txt", lowercase=False)
    assert not caplog.records


@pytest.mark.parametrize(
    ("config", "arguments", "expected"),
    [
        ({"do_lower_case": True}, {}, (True, True)),
        ({"do_lower_case": True, "strip_accents": None}, {}, (True, True)),
        ({"do_lower_case": True, "strip_accents": False}, {}, (True, False)),
        ({"do_lower_case": False}, {}, (False, False)),
        ({"do_lower_case": False}, {"lowercase": True}, (True, True)),
        ({"do_lower_case": True}, {"strip_accents": False}, (True, False)),
    ],
)
def test_case_is_read_from_the_files(tmp_path, caplog, config, arguments, expected):
    path = write_vocabulary(tmp_path / "vocab.txt", [*SPECIALS, "A", "a"])
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    for place in (tmp_path, path):
        tokenizer = tokenizers.load(place, **arguments)
        assert (tokenizer.lowercase, tokenizer.strip_accents) == expected
    assert not caplog.records


def hf_json(tokens, normalizer):
    return {
        "added_tokens": [{"id": i, "content": t, "special": True} for i, t in enumerate(SPECIALS)],
        "normalizer": {"type": "BertNormalizer", **normalizer},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "model": {"type": "WordPiece", "vocab": {t: i for i, t in enumerate(tokens)}},
    }


def test_hugging_face_files(tmp_path):
    content = hf_json([*SPECIALS, "a", "B", "中文"], {"lowercase": False, "handle_chinese_chars": False})
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    tokenizer = tokenizers.load(tmp_path)
    assert tokenizer.encode("a B 中文").ids == [2, 5, 6, 7, 3]
    content["model"]["type"] = "BPE"
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match="only WordPiece"):
        tokenizers.load(tmp_path)
    write_vocabulary(tmp_path / "vocab.txt", [*SPECIALS, "b", "[BOS]"])
    (tmp_path / "special_tokens_map.json").write_text('{"cls_token": {"content": "[BOS]"}}')
    tokenizer = tokenizers.load(tmp_path)
    assert tokenizer.encode("b").ids == [6, 5, 3] and 6 in tokenizer.special_ids
    assert not tokenizer.lowercase  # by tokenizer.json


# Files


@pytest.mark.parametrize("name", ["small", "pieces", "cased", "albert"])
def test_save_and_load(request, tmp_path, caplog, name):
    tokenizer = request.getfixturevalue(name)
    tokenizer.save(tmp_path / "deep/er")
    caplog.clear()
    again = tokenizers.load(tmp_path / "deep/er")
    assert not caplog.records
    assert sorted(p.name for p in (tmp_path / "deep/er").iterdir()) == sorted(
        ["tokenizer_config.json", "vocab.txt" if tokenizer.kind == "wordpiece" else "spiece.model"]
    )
    assert again.digest() == tokenizer.digest() == pickle.loads(pickle.dumps(tokenizer)).digest()
    assert (again.kind, again.lowercase, again.strip_accents) == (
        tokenizer.kind, tokenizer.lowercase, tokenizer.strip_accents,
    )  # fmt: skip
    assert again.specials == tokenizer.specials
    assert again.encode_batch(ODD) == tokenizer.encode_batch(ODD)


def test_buckets(tmp_path, monkeypatch, small, pieces):
    """The same code on gs:// paths, with a folder in place of the bucket behind TensorFlow's file system."""
    import tensorflow as tf

    gfile = tf.io.gfile

    def here(path):
        return os.fspath(path).replace("gs://bucket", str(tmp_path))

    def there(paths):
        return [path.replace(str(tmp_path), "gs://bucket") for path in paths]

    for name in ("exists", "isdir", "makedirs", "GFile"):
        real = getattr(gfile, name)
        monkeypatch.setattr(gfile, name, lambda path, *rest, real=real: real(here(path), *rest))
    real_glob, real_rename = gfile.glob, gfile.rename
    monkeypatch.setattr(gfile, "glob", lambda path: there(real_glob(here(path))))
    monkeypatch.setattr(
        gfile, "rename", lambda old, new, overwrite=False: real_rename(here(old), here(new), overwrite)
    )
    for tokenizer in (small, pieces):
        folder = f"gs://bucket/{tokenizer.kind}"
        tokenizer.save(folder)
        assert tokenizers.load(folder).digest() == tokenizer.digest()
    assert (tmp_path / "sentencepiece/spiece.model").exists()
    os.rename(tmp_path / "wordpiece/vocab.txt", tmp_path / "wordpiece/my-vocab.txt")
    assert tokenizers.load("gs://bucket/wordpiece").digest() == small.digest()
    with pytest.raises(ValueError, match="gs://bucket/none: no such file"):
        tokenizers.load("gs://bucket/none")


def test_save_over_the_other_kind(tmp_path, small, pieces):
    for tokenizer in (small, pieces, small):
        tokenizer.save(tmp_path)
        assert tokenizers.load(tmp_path).digest() == tokenizer.digest()


def test_digest_tells_what_changes_encodings(tmp_path):
    path = write_vocabulary(tmp_path / "v.txt", [*SPECIALS, "[SOS]", "[EOS]", "a"])
    other = write_vocabulary(tmp_path / "w.txt", [*SPECIALS, "[SOS]", "[EOS]", "b"])
    made = [
        tokenizers.load(path),
        tokenizers.load(other),
        tokenizers.load(path, lowercase=False),
        tokenizers.load(path, strip_accents=False),
        tokenizers.load(path, cls="[SOS]", sep="[EOS]"),
    ]
    assert len({tokenizer.digest() for tokenizer in made}) == len(made)
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert tokenizers.load(path).digest() == made[0].digest()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (b"[PAD]\n[UNK]\n\xff\n", "line 3 is not UTF-8"),
        (b"[PAD]\n[UNK]\n\n[CLS]\n", "line 3 is empty"),
        (b"[PAD]\na\nb\na\n", "'a' stands on lines 2 and 4"),
        (b"[UNK]\n[CLS]\n[SEP]\na\n", r"lacks special tokens: \[PAD\] or <pad>, \[MASK\] or <mask>"),
        (b"a\nb\n", r"\[CLS\], \[SEP\]"),
    ],
)
def test_bad_vocabularies(tmp_path, content, message):
    (tmp_path / "vocab.txt").write_bytes(content)
    for path in (tmp_path, tmp_path / "vocab.txt"):
        with pytest.raises(tokenizers.VocabularyError, match=message) as error:
            tokenizers.load(path)
        assert "\n" not in str(error.value) and str(tmp_path) in str(error.value)


def test_bad_paths(tmp_path, test_data):
    (tmp_path / "x.model").write_bytes(b"not a model")
    (tmp_path / "y.model").write_bytes(b"")
    (tmp_path / "x.bin").write_bytes(b"")
    write_vocabulary(tmp_path / "v.txt", SPECIALS)
    for arguments, message in (
        ((tmp_path / "absent",), "no such file"),
        ((tmp_path / "x.model",), "not a SentencePiece model"),
        ((tmp_path / "y.model",), "not a SentencePiece model"),
        ((tmp_path / "x.bin",), "must be a directory"),
        ((tmp_path,), r"several \(x.model, y.model\)"),
        ((test_data / "golden",), "none"),
        ((test_data / "tokenizers/hf_fixtures/test_sentencepiece.model",), r"\[MASK\] or <mask>"),
        ((tmp_path / "v.txt", None, None, "[SOS]"), r"cls \[SOS\]"),
    ):
        with pytest.raises(ValueError, match=message):
            tokenizers.load(*arguments)
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(ValueError, match="not a JSON file"):
        tokenizers.load(tmp_path / "v.txt")
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": "no"}')
    with pytest.raises(ValueError, match="must be true or false"):
        tokenizers.load(tmp_path / "v.txt")


# Training

_TRAIN = """
import sys
from bert_jax.data import tokenizer
texts = sys.stdin.read().split("\\n")
print(tokenizer.train_wordpiece(texts, 400).digest(), tokenizer.train_sentencepiece(texts, 200).digest())
"""


def test_training_is_the_same_in_every_process(test_data):
    text = (test_data / "corpus/wikitext-2/valid.txt").read_text(encoding="utf-8")[:60_000]
    texts = text.split("\n")
    here = [
        tokenizers.train_wordpiece(iter(texts), 400).digest(),
        tokenizers.train_sentencepiece(iter(texts), 200).digest(),
    ]
    for seed in ("1", "2"):
        output = subprocess.run(
            [sys.executable, "-c", _TRAIN],
            input=text, capture_output=True, text=True, encoding="utf-8", check=True,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.getcwd(), "PYTHONUTF8": "1"},
        ).stdout  # fmt: skip
        assert output.split() == here


def test_trained_wordpiece(small):
    assert [small.token(i) for i in range(5)] == SPECIALS
    assert small.id("was") is not None and small.id("##s") is not None and small.id("sep") is None
    assert small.encode("The [SEP] wisest", special=False).tokens[:2] == ["the", "[SEP]"]
    assert small.unk_id not in [i for ids in small.encode_batch(TEXT) for i in ids]
    cased = tokenizers.train_wordpiece(TEXT, 200, lowercase=False)
    assert cased.id("É") is None and cased.id("é") is not None and cased.id("I") is not None
    assert not cased.lowercase and not cased.strip_accents
    assert tokenizers.train_wordpiece(TEXT, 200, strip_accents=False).id("é") is not None


def test_trained_sentencepiece(pieces):
    assert [pieces.token(i) for i in range(5)] == ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
    assert pieces.special_ids.tolist() == [0, 1, 2, 3, 4]
    assert pieces.encode("The [SEP] wisest", special=False).tokens.count("[SEP]") == 1
    assert pieces.encode("Times, times.", special=False).tokens == ["▁times", ",", "▁times", "."]
    assert not any("\t" in pieces.token(i) for i in range(pieces.vocab_size))
    assert pieces.decode(pieces.encode("it was the best of times").ids) == "it was the best of times"


def test_vocabulary_larger_than_the_text_gives(caplog):
    for train in (tokenizers.train_wordpiece, tokenizers.train_sentencepiece):
        tokenizer = train(["a b ab ab\0 b"], 500)
        assert 5 < tokenizer.vocab_size < 20
        assert "not 500" in caplog.text
        caplog.clear()


def test_vocabulary_size_is_kept():
    for size in (9, 20, 40):
        assert tokenizers.train_wordpiece(TEXT, size).vocab_size <= size
    with pytest.raises(ValueError, match=r"data\.vocab_size is 8"):
        tokenizers.train_sentencepiece(TEXT, 8)
    for train in (tokenizers.train_wordpiece, tokenizers.train_sentencepiece):
        with pytest.raises(ValueError, match="no words"):
            train([" ", ""], 100)
        with pytest.raises(ValueError, match=r"data\.vocab_size is 5"):
            train(TEXT, 5)


def test_training_holds_a_bounded_number_of_words(monkeypatch):
    monkeypatch.setattr(vocabulary, "MOST_WORDS", 50)
    seen = []

    def texts():
        for i in range(2000):
            yield f"common word{i}"
        seen.append("read once")

    tokenizer = tokenizers.train_wordpiece(texts(), 100)
    assert seen == ["read once"] and tokenizer.id("common") is not None


def test_large_counts_are_scaled(monkeypatch):
    monkeypatch.setattr(vocabulary, "MOST_TRAINED_WORDS", 1000)
    tokenizer = tokenizers.train_wordpiece(["often " * 30_000, "rare"], 40)
    assert tokenizer.id("often") is not None and tokenizer.id("rare") is None


def _encode_in_worker(tokenizer):
    return tokenizer.encode_batch(TEXT)


def test_workers_by_spawn(small, pieces):
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        for tokenizer in (small, pieces):
            assert pool.apply(_encode_in_worker, (tokenizer,)) == tokenizer.encode_batch(TEXT)


def test_longest_word(uncased):
    longest = "a" * wordpiece.LONGEST_WORD
    assert uncased.unk_id not in uncased.encode_batch([longest])[0]
    assert uncased.encode_batch([longest + "a"]) == [[uncased.unk_id]]
