"""Files for Hugging Face: their tokenizer.json gives our ids in the package, and load finds all as it was."""

import json

import pytest
import tokenizers as package
from test_bytebpe import MANY, modern, roberta_files
from test_tokenizer import TEXT

from bert_jax.data import tokenizer as tokenizers

# Not in these: what the fast form of SentencePiece does another way (see `transformers_files.files`).
ANOTHER_WAY = ("\u039f\u0394\u039f\u03a3", "\u0345")


@pytest.fixture(scope="module")
def made(test_data, tmp_path_factory):
    """Tokenizers of every kind, by name."""
    folder = tmp_path_factory.mktemp("made")
    bpe = tokenizers.train_bytebpe(TEXT, 320)
    modern(bpe).save(str(folder / "tokenizer.json"))
    vocabularies = test_data / "tokenizers"
    return {
        "uncased": tokenizers.load(vocabularies / "bert-base-uncased-vocab.txt", lowercase=True),
        "cased": tokenizers.load(vocabularies / "bert-base-cased-vocab.txt", lowercase=False),
        "accents": tokenizers.load(vocabularies / "bert-base-uncased-vocab.txt", True, strip_accents=False),
        "sos": tokenizers.load(
            vocabularies / "tta/vocab-lower.sub-32k.txt", lowercase=True, cls="[SOS]", sep="[EOS]"
        ),
        "albert": tokenizers.load(vocabularies / "hf_fixtures/spiece.model", lowercase=True),
        "pieces": tokenizers.train_sentencepiece(TEXT, 60, lowercase=False),
        "bpe": bpe,
        "lower bpe": tokenizers.train_bytebpe(TEXT, 320, lowercase=True),
        "roberta": tokenizers.load(roberta_files(folder / "roberta", bpe)),
        "modern": tokenizers.load(folder),
    }


@pytest.fixture(scope="module")
def lines(test_data):
    text = (test_data / "corpus/books/Moby-Dick.md").read_text(encoding="utf-8").split("\n")
    odd = [text.encode(errors="replace").decode() for text in MANY]
    return [*filter(None, text[:400]), *odd, "in 1999, 12,345, and 92000, 3,4,5, 2000,"]


@pytest.mark.parametrize(
    ("name", "family", "kind"),
    [
        ("uncased", "bert", "BertTokenizer"),
        ("cased", "roformer", "BertTokenizer"),
        ("accents", "distilbert", "DistilBertTokenizer"),
        ("sos", "tta", "BertTokenizer"),
        ("albert", "albert", "AlbertTokenizer"),
        ("pieces", "albert", "AlbertTokenizer"),
        ("bpe", "roberta", "PreTrainedTokenizerFast"),
        ("lower bpe", "roberta", "PreTrainedTokenizerFast"),
        ("roberta", "roberta", "RobertaTokenizer"),
        ("modern", "modernbert", "PreTrainedTokenizerFast"),
    ],
)
def test_written_files(tmp_path, made, lines, name, family, kind):
    ours = made[name]
    ours.save_for_transformers(tmp_path, 128, family)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text(encoding="utf-8"))
    assert (config["tokenizer_class"], config["model_max_length"]) == (kind, 128)
    types = family not in ("roberta", "distilbert", "modernbert")
    assert ("token_type_ids" in config["model_input_names"]) == types
    assert config["mask_token"] == ours.specials.mask
    theirs = package.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert theirs.get_vocab_size() == ours.vocab_size
    mask = ours.specials.mask
    some = [text for text in lines if name != "albert" or not any(odd in text for odd in ANOTHER_WAY)]
    for text in [*some, f"x {mask} y{mask}."]:
        pair = ours.encode(text, "and b")
        other = theirs.encode(text, "and b")
        assert (pair.ids, pair.type_ids) == (other.ids, other.type_ids), text
        assert ours.encode(text).ids == theirs.encode(text).ids
    again = tokenizers.load(tmp_path)
    assert again.digest() == ours.digest()
