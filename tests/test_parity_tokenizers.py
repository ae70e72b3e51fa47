"""The tokenizers of `transformers` on the files that are written for them: the same ids and types as ours."""

import pytest
from test_transformers_files import ANOTHER_WAY, lines, made

transformers = pytest.importorskip("transformers", reason="transformers is not installed: test.sh --parity")

__all__ = ["lines", "made"]  # fixtures


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("uncased", "bert"),
        ("cased", "electra"),
        ("cased", "roformer"),
        ("accents", "distilbert"),
        ("sos", "bert"),
        ("albert", "albert"),
        ("pieces", "albert"),
        ("bpe", "roberta"),
        ("lower bpe", "bert"),
        ("roberta", "roberta"),
        ("modern", "modernbert"),
    ],
)
@pytest.mark.parametrize("with_config", [False, True])
def test_auto_tokenizer(tmp_path, made, lines, name, family, with_config):
    ours = made[name]
    ours.save_for_transformers(tmp_path, 128, family)
    if with_config:  # the model's own, by which AutoTokenizer may choose another class
        transformers.AutoConfig.for_model(family).save_pretrained(tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert len(theirs) == ours.vocab_size and theirs.model_max_length == 128
    for role in ("pad", "unk", "cls", "sep", "mask"):
        assert getattr(theirs, f"{role}_token_id") == getattr(ours, f"{role}_id"), role
    mask = ours.specials.mask
    some = [text for text in lines if name != "albert" or not any(odd in text for odd in ANOTHER_WAY)]
    assert len(some) >= 200
    for text in [*some, f"x {mask} y{mask}."]:
        assert theirs(text)["input_ids"] == ours.encode(text).ids, text
        pair, other = ours.encode(text, "and b"), theirs(text, "and b")
        assert other["input_ids"] == pair.ids
        assert other.get("token_type_ids", pair.type_ids) == pair.type_ids
    typed = ours.pair_type == 1 and family not in ("roberta", "distilbert", "modernbert")
    assert ("token_type_ids" in theirs("a")) == typed
