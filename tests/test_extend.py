"""Vocabularies for a domain: words that are added, what changes and what does not, rows to start from."""

import collections
import random

import pytest
from test_tokenizer import plain

from bert_jax.data import extend, vocabulary
from bert_jax.data import tokenizer as tokenizers
from bert_jax.data.wordpiece import WordPiece

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = [*"abcdeginst", *(f"##{letter}" for letter in "abcdeginst")]
PIECES = ["gen", "genetic", "##etic", "##es"]


@pytest.fixture(scope="module")
def old():
    return WordPiece([*SPECIALS, "[unused0]", *LETTERS, *PIECES], lowercase=True, strip_accents=True)


def split(tokenizer, text):
    return " ".join(tokenizer.encode(text, special=False).tokens)


def test_words_are_taken_by_the_tokens_that_they_save(old):
    # gene: 5 * (2 - 1); bandit: 3 * (6 - 1); tea: 9 * (3 - 1); sad: 9 * (3 - 1); cab is rare, xenon unknown.
    texts = ["Gene " * 5, "bandit, " * 3 + "tea " * 9 + "SAD." * 9, "cab xenon xenon xenon 11 11 11 11 11 11"]
    new, pieces = extend.extend(old, iter(texts), 9, min_count=3)
    assert [new.token(i) for i in range(old.vocab_size, new.vocab_size)] == ["sad", "tea", "bandit", "gene"]
    assert pieces == [old.encode(word, special=False).ids for word in ("sad", "tea", "bandit", "gene")]
    assert new.vocab_size == old.vocab_size + 4
    assert [new.token(i) for i in range(old.vocab_size)] == [old.token(i) for i in range(old.vocab_size)]
    assert new.specials == old.specials and new.special_ids.tolist() == old.special_ids.tolist()
    two, pieces = extend.extend(old, texts, 2, min_count=3)
    assert [two.token(old.vocab_size + i) for i in range(2)] == ["sad", "tea"] and len(pieces) == 2
    assert split(two, "sad tea bandit") == "sad tea b ##a ##n ##d ##i ##t"


def test_what_a_new_word_changes(old):
    new, _ = extend.extend(old, ["gene "] * 5, 1)
    assert split(old, "gene") == "gen ##e" and split(new, "gene") == "gene"
    # Longer than the old first piece: words that begin with it are split another way, with more pieces here.
    assert split(old, "genes") == "gen ##es" and split(new, "genes") == "gene ##s"
    assert split(old, "geneetic") == "gen ##e ##etic" and split(new, "geneetic") == "gene ##etic"
    # The old vocabulary has a longer beginning, or the word does not begin so: as before.
    for word in ("genetic", "genetics", "gent", "degene", "gen"):
        assert split(new, word) == split(old, word)


def test_no_other_words_change(old):
    draw = random.Random(0)
    texts = [" ".join("".join(draw.choices("abcdeginst", k=draw.randrange(1, 6))) for _ in range(4000))]
    new, pieces = extend.extend(old, texts, 40, min_count=2)
    words = {new.token(i) for i in range(old.vocab_size, new.vocab_size)}
    assert len(words) == len(pieces) == 40
    counts = collections.Counter(texts[0].split())
    saved = {word: counts[word] * (len(ids) - 1) for word, ids in extend._pieces(old, list(counts)).items()}
    others = [saved[word] for word in saved if word not in words and counts[word] > 1]
    assert min(saved[word] for word in words) >= max(others)
    changed = 0
    for word in counts:
        if any(word.startswith(start) for start in words):
            changed += split(old, word) != split(new, word)
        else:
            assert split(old, word) == split(new, word)
    assert changed >= 40


def test_a_word_that_makes_another_unknown_is_not_taken():
    # "ab" would leave "cd" of "abcd", which is no token inside words: only "##bcd" is.
    tokens = [*SPECIALS, "a", "b", "##b", "c", "##bcd", "x", "##x"]
    old = WordPiece(tokens, lowercase=True, strip_accents=True)
    new, pieces = extend.extend(old, ["ab " * 9, "xx " * 5, "abcd"], 9)
    assert [new.token(i) for i in range(len(tokens), new.vocab_size)] == ["xx"] and len(pieces) == 1
    assert split(new, "abcd") == "a ##bcd"
    alone, _ = extend.extend(old, ["ab " * 9, "xx " * 5], 9)
    assert alone.id("ab") is not None


def test_refusals(old):
    texts = ["it was the best of times " * 20]
    for other in (tokenizers.train_sentencepiece(texts, 30), tokenizers.train_bytebpe(texts, 300)):
        with pytest.raises(tokenizers.VocabularyError, match="only WordPiece vocabularies can be extended"):
            extend.extend(other, texts, 5)
    with pytest.raises(tokenizers.VocabularyError, match="no word that occurs 5 times"):
        extend.extend(old, ["genes genetic xenon"], 5)
    with pytest.raises(tokenizers.VocabularyError, match="must be 1 or more"):
        extend.extend(old, texts, 0)


def test_extended_vocabulary_is_kept(tmp_path, old):
    new, _ = extend.extend(old, ["gene "] * 5, 1)
    new.save(tmp_path)
    again = tokenizers.load(tmp_path)
    assert again.digest() == new.digest() != old.digest()
    assert again.encode("gene genes [MASK]").ids == new.encode("gene genes [MASK]").ids


def test_texts_are_read_once_in_bounded_memory(monkeypatch, old):
    monkeypatch.setattr(vocabulary, "MOST_WORDS", 50)
    texts = (f"gene [MASK] x{i} [SEP]" for i in range(3000))
    new, _ = extend.extend(old, texts, 5)
    assert new.id("gene") is not None and new.id("mask") is None


def test_disease_texts(test_data):
    """What it does for biomedical text, with BERT's vocabulary."""

    def sentences(name):
        text = (test_data / "ner/ncbi-disease" / name).read_text(encoding="utf-8")
        return [" ".join(row.split("\t")[0] for row in part.split("\n")) for part in text.split("\n\n")]

    old = tokenizers.load(test_data / "tokenizers/bert-base-uncased-vocab.txt", lowercase=True)
    texts, others = sentences("train.tsv"), sentences("devel.tsv")
    new, pieces = extend.extend(old, texts, 500)
    again, _ = extend.extend(old, reversed(texts), 500)
    assert again.digest() == new.digest()
    first = [new.token(old.vocab_size + i) for i in range(4)]
    assert first == ["dystrophy", "g6pd", "brca1", "deletion"]
    assert [old.token(i) for i in pieces[0]] == ["d", "##yst", "##rop", "##hy"]

    def per_word(tokenizer, texts):
        tokens = sum(map(len, tokenizer.encode_batch(texts)))
        return tokens / sum(vocabulary.words_of(texts, old).values())

    assert per_word(old, texts) == pytest.approx(1.293, abs=0.001)
    assert per_word(new, texts) == pytest.approx(1.109, abs=0.001)
    assert per_word(old, others) == pytest.approx(1.272, abs=0.001)
    assert per_word(new, others) == pytest.approx(1.121, abs=0.001)


# A new vocabulary


def test_transfer_is_the_identity_on_the_same_tokens(old):
    new, pieces = extend.extend(old, ["gene "] * 5 + ["tea "] * 5, 2)
    assert extend.transfer(new, old) == [[i] for i in range(old.vocab_size)] + pieces
    assert extend.transfer(old, new) == [[i] for i in range(old.vocab_size)]


def test_transfer_to_another_order_and_other_names(old):
    names = [
        "<unk>",
        "genetic",
        "genets",
        "##tea",
        "##é",
        "Gene",
        "[unused7]",
        "ñ",
        "<s>",
        "</s>",
        "<pad>",
        "<mask>",
    ]
    new = WordPiece([*names, "[SOS]"], lowercase=False, strip_accents=False)
    found = extend.transfer(new, old)

    def ids(text):
        return [old.id(token) for token in text.split()]

    assert found == [
        ids("[UNK]"), ids("genetic"), ids("gen ##e ##t ##s"), ids("##t ##e ##a"), ids("##e"), ids("gen ##e"),
        [], ids("n"), ids("[CLS]"), ids("[SEP]"), ids("[PAD]"), ids("[MASK]"), [],
    ]  # fmt: skip
    unknown = WordPiece([*SPECIALS, "\u4e2d", "##\u4e2d"], lowercase=True, strip_accents=True)
    assert extend.transfer(unknown, old)[-2:] == [[], []]


def test_transfer_between_kinds(test_data):
    text = (test_data / "corpus/wikitext-2/valid.txt").read_text(encoding="utf-8")[:200_000].split("\n")
    kinds = [
        tokenizers.train_wordpiece(text, 1500),
        tokenizers.train_sentencepiece(text, 1000),
        tokenizers.train_bytebpe(text, 1500, lowercase=True),
        tokenizers.train_bytebpe(text, 1500, lowercase=True, prefix_space=False),
    ]
    starts, inside = ["the", "▁the", "Ġthe", "Ġthe"], ["##ing", "ing", "ing", "ing"]
    for new, start, suffix in zip(kinds, starts, inside, strict=True):
        for old, old_start, old_suffix in zip(kinds, starts, inside, strict=True):
            found = extend.transfer(new, old)
            assert len(found) == new.vocab_size
            assert found[new.id(start)] == [old.id(old_start)]
            assert found[new.id(suffix)] == [old.id(old_suffix)]
            assert found[new.mask_id] == [old.mask_id] and found[new.pad_id] == [old.pad_id]
            assert all(0 <= i < old.vocab_size and i != old.unk_id for n, ids in enumerate(found) for i in ids
                       if n != new.unk_id)  # fmt: skip
            if old.kind == new.kind == "bpe":
                continue
            # What one vocabulary has no token for stands as the pieces of its text.
            for i, ids in enumerate(found):
                if len(ids) > 1 and i not in new.special_ids:
                    piece = plain(extend._surface(new, i)[0])
                    assert plain(old.decode(ids)).replace(" ", "") == piece, (new.token(i), ids)
