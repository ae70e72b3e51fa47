"""The picture of what a model does with a text: its numbers, its page, and the page in a browser."""

import base64
import json
import math
import re
import zlib

import browser
import jax.numpy as jnp
import numpy as np
import pytest
import tiny_models

from bert_jax.models.model import Model
from bert_jax.visual import page, reading

HOSTILE = '</script><script>document.title="taken"</script><img src=x onerror=alert(1)> & "quotes" \u2028'


@pytest.fixture
def tokenizer(tmp_path):
    return tiny_models.tokenizer(tmp_path)


def logs(source, ids, place, **batch):
    """log p over the vocabulary at one place of one row."""
    model, params = Model(source.spec), source.params
    row = {"tokens": jnp.asarray([ids], jnp.int32)} | batch
    hidden = model.apply({"params": params}, row, method="hidden")
    logits = np.asarray(model.apply({"params": params}, hidden, method="token_logits"))[0, place]
    logits = logits.astype(np.float64)
    return logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()


def test_weights_are_shares_of_what_each_token_may_see(tokenizer):
    found = reading.read(tiny_models.source(tokenizer), "the cat sat")
    assert found.tokens == ["[CLS]", "the", "cat", "sat", "[SEP]"]
    assert found.special == [True, False, False, False, True]
    assert found.weights.shape == (2, 2, 5, 5)
    np.testing.assert_allclose(found.weights.sum(-1), 1.0, atol=1e-5)
    assert found.weights.std() > 0.05

    causal = reading.read(tiny_models.source(tokenizer, mask="causal"), "the cat sat")
    assert (causal.weights[:, :, np.triu_indices(5, 1)[0], np.triu_indices(5, 1)[1]] == 0).all()
    tta = reading.read(tiny_models.source(tokenizer, kind="tta"), "the cat sat")
    assert (tta.weights[:, :, np.arange(5), np.arange(5)] == 0).all()


def test_a_masked_models_guesses_are_those_with_the_mask_in_the_tokens_place(tokenizer):
    source = tiny_models.source(tokenizer)
    found = reading.read(source, "the cat [MASK] on", top_k=3)
    ids = tokenizer.encode("the cat [MASK] on").ids
    for place in (1, 2, 4):
        masked = [*ids[:place], tokenizer.mask_id, *ids[place + 1 :]]
        log_p = logs(source, masked, place)
        assert found.surprisal[place] == pytest.approx(-log_p[ids[place]] / math.log(2), rel=1e-4)
        words = [i for i in np.argsort(-log_p).tolist() if i < 17 and i not in tokenizer.special_ids][:3]
        assert [token for token, _ in found.fillers[place]] == [tokenizer.token(i) for i in words]
        assert [p for _, p in found.fillers[place]] == pytest.approx(np.exp(log_p[words]), rel=1e-4)
    assert found.surprisal[3] is None  # what stood behind [MASK] is not known
    assert len(found.fillers[3]) == 3
    assert found.fillers[0] == found.fillers[5] == [] and found.surprisal[0] is None


def test_ttas_guesses_are_of_one_pass_and_a_left_to_right_models_of_what_is_before(tokenizer):
    ids = tokenizer.encode("the cat sat").ids
    tta = tiny_models.source(tokenizer, kind="tta")
    found = reading.read(tta, "the cat sat")
    assert found.surprisal[2] == pytest.approx(-logs(tta, ids, 2)[ids[2]] / math.log(2), rel=1e-4)
    causal = tiny_models.source(tokenizer, mask="causal")
    found = reading.read(causal, "the cat sat")
    assert found.surprisal[2] == pytest.approx(-logs(causal, ids, 1)[ids[2]] / math.log(2), rel=1e-4)


def test_a_model_without_token_head_has_its_attention_shown_alone(tokenizer):
    found = reading.read(tiny_models.source(tokenizer, heads={"has_mlm": False, "labels": 3}), "the cat")
    assert found.weights.shape == (2, 2, 4, 4)
    assert found.fillers == [[]] * 4 and found.surprisal == [None] * 4
    assert "no head" in found.predicts


def test_long_texts_are_cut_and_pairs_told_apart(tokenizer):
    source = tiny_models.source(tokenizer)
    found = reading.read(source, "the cat " * 30)
    assert len(found.tokens) == 20 and "cut from 62 to 20" in found.note
    pair = reading.read(source, "the cat", "a dog sat")
    assert pair.segments == [0, 0, 0, 0, 1, 1, 1, 1]
    with pytest.raises(ValueError, match="no text"):
        reading.read(source, "  ")


def test_the_page_holds_the_weights_and_escapes_every_text(tokenizer):
    found = reading.read(tiny_models.source(tokenizer), "the cat sat")
    text = page.render(found, HOSTILE, HOSTILE)
    assert text.count("<script") == 2 and "<img" not in text
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])
    bytes_ = np.frombuffer(zlib.decompress(base64.b64decode(data["weights"])), np.uint8)
    shown = (bytes_.reshape(data["shape"]) / 255) ** 2
    assert (np.abs(shown - found.weights) < 4e-3 * np.sqrt(found.weights) + 1e-5).all()
    assert data["tokens"] == found.tokens
    assert page.embedded({"a": HOSTILE}).isascii()
    assert json.loads(page.embedded({"a": HOSTILE})) == {"a": HOSTILE}


def test_the_page_in_a_browser(tokenizer, tmp_path):
    found = reading.read(tiny_models.source(tokenizer), "the cat [MASK] on a mat .", "dogs running s .")
    # A vocabulary may hold anything.
    found.tokens[2] = HOSTILE
    found.fillers[1][0] = (HOSTILE, 0.5)
    file = tmp_path / "page.html"
    file.write_text(page.render(found, HOSTILE, "a model"), encoding="utf-8")
    with browser.opened(file) as driver:
        browser.wait(driver, "document.body.dataset.ready")
        run = driver.execute_script
        assert run("return document.querySelector('h1').textContent") == HOSTILE
        assert driver.title != "taken"
        assert run("return document.images.length") == 0
        assert run("return document.querySelectorAll('.token').length") == len(found.tokens)
        assert run("return document.querySelectorAll('.token')[2].textContent") == HOSTILE
        assert run("return document.querySelectorAll('.token.second').length") == sum(found.segments)
        assert run("return document.querySelectorAll('.token.masked').length") == 1

        # A click keeps a token and shades what it reads; the numbers are the model's.
        chips = driver.find_elements("css selector", ".token")
        chips[1].click()
        assert run("return at('name').textContent") == "the"
        assert HOSTILE in run("return at('fillers').textContent")
        mean = found.weights[-1, :, 1].mean(0)
        order = np.argsort(-mean)
        first = run("return at('reads').rows[0].cells[0].textContent")
        assert first == found.tokens[order[0]]
        shown = run("return Array.from(view.slice(S, 2 * S))")
        np.testing.assert_allclose(shown, mean, atol=3e-3)

        # One head, the other way, without the special tokens.
        run("at('head').value = 0; at('head').dispatchEvent(new Event('change'))")
        run("at('layer').value = 0; at('layer').dispatchEvent(new Event('change'))")
        np.testing.assert_allclose(run("return Array.from(view)"), found.weights[0, 0].ravel(), atol=3e-3)
        run("at('ends').click()")
        rest = found.weights[0, 0].copy()
        rest[found.special] = 0
        rest[:, found.special] = 0
        rest /= np.maximum(rest.sum(-1, keepdims=True), 1e-9)
        np.testing.assert_allclose(run("return Array.from(view)"), rest.ravel(), atol=1e-2)

        # The keyboard alone.
        from selenium.webdriver.common.keys import Keys

        chips[1].send_keys(Keys.ARROW_RIGHT)
        assert run("return document.activeElement.textContent") == HOSTILE
        chips[2].send_keys("]")
        assert run("return state.head") == 1
        chips[2].send_keys(Keys.ESCAPE)
        assert run("return state.kept") == -1
        # The picture in the second row and the first column.
        run(
            "const box = at('heads').getBoundingClientRect();"
            "at('heads').dispatchEvent(new MouseEvent('click', "
            "{clientX: box.left + box.width / 4, clientY: box.top + 3 * box.height / 4}))"
        )
        assert run("return [state.layer, state.head]") == [1, 0]


def test_nothing_is_cut_off_on_a_phone_and_512_tokens_stay_smooth(tokenizer, tmp_path):
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.full(512, 0.1), size=(12, 12, 512)).astype(np.float32)
    words = [f"word{i}" for i in range(512)]
    found = reading.Reading(
        words, [0] * 512, [False] * 512, [False] * 512, weights, [[] for _ in words], [1.0] * 512, "", ""
    )
    file = tmp_path / "page.html"
    file.write_text(page.render(found, "a " * 200, "b" * 300), encoding="utf-8")
    with browser.opened(file, width=360, height=740) as driver:
        browser.wait(driver, "document.body.dataset.ready", 120)
        assert driver.execute_script("return document.documentElement.scrollWidth") <= 360
        # A token chosen is a shading of 512 others: far below what an eye sees as a halt, on any machine.
        took = driver.execute_script(
            "const t = performance.now(); for (let i = 0; i < 20; i++) { state.kept = i; shade(); }"
            "document.body.offsetHeight; return (performance.now() - t) / 20"
        )
        assert took < 500, took


def test_the_command_writes_page_and_picture(tokenizer, tmp_path):
    tiny_models.save(tmp_path / "run", tiny_models.source(tokenizer))
    done = tiny_models.run(
        tmp_path, "visualize", "--model=run", "--text=the cat $sat$ [MASK]", "--output=a.html", "--png=a.png",
        "--layer=1",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    assert "the cat $sat$ [MASK]" in (tmp_path / "a.html").read_text()
    assert (tmp_path / "a.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert sorted(p.name for p in tmp_path.glob("a.*")) == ["a.html", "a.png"]
    for change, said in (
        (["--layer=3"], b"error: --layer=3: the model has 2"),
        (["--text= "], b"error: there is no text"),
        (["--output=none/a.html"], b"its directory does not exist"),
    ):
        wrong = ["--model=run", "--text=the cat", "--output=b.html", *change]
        done = tiny_models.run(tmp_path, "visualize", *wrong)
        assert done.returncode == 2 and said in done.stderr, done.stderr
        assert not (tmp_path / "b.html").exists()
