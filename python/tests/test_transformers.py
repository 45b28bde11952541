"""transformers with horner: our model folders, generate(), and attn_implementation."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import horner
import sanitizer

transformers = pytest.importorskip("transformers", reason="no transformers")

PATTERNS = [["gla:heads=2", "window:heads=2,window=3"], ["softmax:heads=2"], ["mamba2:head=8,state=4"]]
every_pattern = pytest.mark.parametrize("pattern", PATTERNS, ids=lambda p: p[0].split(":")[0])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "model"


def saved(folder: Path, pattern: list[str]) -> horner.nn.Model:
    model = horner.nn.Model(pattern=pattern, layers=2, D=16, vocabulary=11, seed=1).eval()
    with torch.no_grad():
        for p in model.parameters():  # far from 0, so that greedy decoding has one answer
            p.mul_(3)
    horner.save(model, folder)
    return model


def ids(T: int = 6) -> torch.Tensor:
    return torch.randint(1, 11, (2, T), generator=torch.Generator().manual_seed(1))


def greedy(model: horner.nn.Model, prompt: torch.Tensor, n: int) -> torch.Tensor:
    for _ in range(n):
        prompt = torch.cat([prompt, model(prompt)[:, -1:].argmax(-1)], 1)
    return prompt


@every_pattern
def test_auto_model_opens_a_folder(folder: Path, pattern: list[str]) -> None:
    own = saved(folder, pattern)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    torch.testing.assert_close(model(ids()).logits, own(ids()), rtol=1e-6, atol=1e-6)
    loss = model(ids(), labels=ids()).loss
    expected = torch.nn.functional.cross_entropy(own(ids())[:, :-1].flatten(0, 1), ids()[:, 1:].flatten())
    torch.testing.assert_close(loss, expected)
    model.save_pretrained(folder.with_name("again"))
    assert torch.equal(horner.load(folder.with_name("again"))(ids()), own(ids()))


@every_pattern
def test_generate_goes_on_from_the_state(folder: Path, pattern: list[str]) -> None:
    own = saved(folder, pattern)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    lengths = []
    inner = model.model.forward
    model.model.forward = lambda x, *a, **k: lengths.append(x.shape[1]) or inner(x, *a, **k)
    result = model.generate(ids(), max_new_tokens=5, do_sample=False)
    assert torch.equal(result, greedy(own, ids(), 5))
    assert lengths == [6, 1, 1, 1, 1]  # the state is the cache: each token is read once
    slow = model.generate(ids(), max_new_tokens=5, do_sample=False, use_cache=False)
    assert torch.equal(slow, result)


def test_beams_and_left_padding(folder: Path) -> None:
    own = saved(folder, PATTERNS[0])
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    options: dict[str, Any] = {"max_new_tokens": 4, "do_sample": False, "num_beams": 3}
    with_state = model.generate(ids(), **options)
    assert torch.equal(with_state, model.generate(ids(), use_cache=False, **options))
    mask = torch.ones(2, 6, dtype=torch.int64)
    mask[1, :2] = 0
    padded = model.generate(ids(), attention_mask=mask, max_new_tokens=4, do_sample=False, pad_token_id=0)
    assert torch.equal(padded[0], greedy(own, ids()[:1], 4)[0])
    assert torch.equal(padded[1, 2:], greedy(own, ids()[1:, 2:], 4)[0])


@torch.no_grad()
def test_a_cache_goes_on(folder: Path) -> None:
    """A second turn of a chat; rows that are chosen and repeated. A cache stays valid and cannot be cut."""
    own = saved(folder, PATTERNS[0])
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    first = model.generate(ids(), max_new_tokens=4, do_sample=False, return_dict_in_generate=True)
    turn = torch.cat([first.sequences, ids(2)], 1)
    second = model.generate(turn, past_key_values=first.past_key_values, max_new_tokens=3, do_sample=False)
    assert torch.equal(second, greedy(own, turn, 3))
    more = ids(2)
    expected = own(torch.cat([ids(), more], 1))[:, 6:]
    cache = model(ids(), use_cache=True).past_key_values
    for _ in range(2):  # it stays valid
        torch.testing.assert_close(model(more, past_key_values=cache).logits, expected, rtol=1e-4, atol=1e-5)
    cache.batch_repeat_interleave(2)
    cache.batch_select_indices(torch.tensor([3, 0]))
    swapped = model(more.flip(0), past_key_values=cache).logits
    torch.testing.assert_close(swapped, expected.flip(0), rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="cannot be cut back to an earlier token"):
        cache.crop(4)


def test_loss_of_a_trainer(folder: Path) -> None:
    """Over the tokens of all accumulated batches, and of labels that are shifted already."""
    saved(folder, PATTERNS[0])
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    mean = model(ids(), labels=ids()).loss
    torch.testing.assert_close(model(ids(), labels=ids(), num_items_in_batch=40).loss, mean * 10 / 40)
    shifted = torch.nn.functional.pad(ids()[:, 1:], (0, 1), value=-100)
    torch.testing.assert_close(model(ids(), labels=ids(), shift_labels=shifted).loss, mean)


def test_packed_rows_and_chosen_logits(folder: Path) -> None:
    own = saved(folder, PATTERNS[0])
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    tokens = ids(10)
    places = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3, 4, 5], list(range(10))])
    logits = model(tokens, position_ids=places, use_cache=True).logits
    for row, begin, end in ((0, 0, 4), (0, 4, 10), (1, 0, 10)):
        torch.testing.assert_close(logits[row : row + 1, begin:end], own(tokens[row : row + 1, begin:end]))
    torch.testing.assert_close(model(tokens, position_ids=torch.arange(10)[None]).logits, own(tokens))
    torch.testing.assert_close(model(tokens, logits_to_keep=2).logits, own(tokens)[:, -2:])
    torch.testing.assert_close(model(tokens, logits_to_keep=torch.tensor([3, 5])).logits, own(tokens)[:, [3, 5]])


def test_what_our_models_do_not_take_is_refused(folder: Path) -> None:
    saved(folder, PATTERNS[0])
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    with pytest.raises(ValueError, match="must count from 0 in each sequence"):
        model(ids(), position_ids=torch.tensor([[3, 4, 5, 6, 7, 8]]))
    with pytest.raises(ValueError, match=r"attention_mask must be \(B,T\)"):
        model(ids(), attention_mask=torch.ones(2, 1, 6, 6))
    for name in ("output_hidden_states", "output_attentions", "inputs_embeds"):
        with pytest.raises(ValueError, match=f"the model has no {name}"):
            model(ids(), **{name: True})
    with pytest.raises(ValueError, match="the vocabulary is a setting"):
        model.resize_token_embeddings(13)


# ---- attn_implementation ------------------------------------------------------------------------


def llama(name: str) -> Any:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=11, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, attn_implementation=name,
    )
    model = transformers.LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():  # scores of about 1, where the series' orders differ
            p.mul_(10 if "q_proj" in name or "k_proj" in name else 1)
    return model


def test_llama_by_horner_is_llama() -> None:
    mask = torch.ones(2, 6, dtype=torch.int64)
    mask[1, :2] = 0
    for given in (None, mask):
        expected = llama("eager")(ids(), attention_mask=given).logits
        actual = llama("horner")(ids(), attention_mask=given).logits
        seen = slice(None) if given is None else given.bool()
        torch.testing.assert_close(actual[seen], expected[seen], rtol=1e-4, atol=1e-5)
    result = llama("horner").generate(ids(), max_new_tokens=4, do_sample=False)
    assert torch.equal(result, llama("eager").generate(ids(), max_new_tokens=4, do_sample=False))


def test_llama_by_taylor_and_window() -> None:
    exact = llama("eager")(ids()).logits
    errors = [(llama(f"horner:taylor:order={n}")(ids()).logits - exact).abs().max().item() for n in (2, 4, 6)]
    assert errors[0] > errors[1] > errors[2] > 0
    wide = llama(horner.attn_implementation("window:window=99"))(ids()).logits
    torch.testing.assert_close(wide, exact, rtol=1e-4, atol=1e-5)
    narrow = llama(horner.attn_implementation("window:window=2"))(ids()).logits
    assert (narrow - exact).abs().max() > 1e-4


def mistral(name: str) -> Any:
    torch.manual_seed(0)
    config = transformers.MistralConfig(
        vocab_size=11, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, sliding_window=4, attn_implementation=name,
    )
    return transformers.MistralForCausalLM(config).eval()


def packed(model: Any) -> torch.Tensor:
    """Two sequences in each row, as a collator without padding makes them."""
    places = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5, 6, 0, 1, 2]])
    return model(ids(10), position_ids=places, use_cache=False).logits


def by_static_cache(model: Any) -> torch.Tensor:
    """Slots after the last token are unwritten."""
    cache = transformers.StaticCache(config=model.config, max_cache_len=16)
    pieces = [model(x, past_key_values=cache, use_cache=True).logits for x in ids(10).split([6, 3, 1], 1)]
    return torch.cat(pieces, 1)


def by_growing_cache(model: Any) -> torch.Tensor:
    cache = transformers.DynamicCache(config=model.config)
    pieces = [model(x, past_key_values=cache, use_cache=True).logits for x in ids(10).split([2, 7, 1], 1)]
    return torch.cat(pieces, 1)


@pytest.mark.parametrize("call", [packed, by_static_cache, by_growing_cache])
@pytest.mark.parametrize("make", [llama, mistral])
def test_masks_of_transformers(make: Any, call: Any) -> None:
    with torch.no_grad():
        torch.testing.assert_close(call(make("horner")), call(make("eager")), rtol=1e-4, atol=1e-5)


def test_generate_with_a_static_cache_and_padding() -> None:
    mask = torch.ones(2, 6, dtype=torch.int64)
    mask[1, :2] = 0
    options: dict[str, Any] = {"max_new_tokens": 4, "do_sample": False, "cache_implementation": "static"}
    for given in (None, mask):
        result, expected = (
            llama(name).generate(ids(), attention_mask=given, **options, pad_token_id=0) for name in ("horner", "eager")
        )
        assert torch.equal(result, expected)


def other_mathematics(name: str) -> Any:
    """A layer of transformers whose attention is not softmax of scaled scores alone."""
    sizes: dict[str, Any] = {"vocab_size": 11, "num_hidden_layers": 1, "attn_implementation": "horner"}
    heads: dict[str, Any] = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 4, "head_dim": 4}
    if name == "Gemma2":  # caps its scores
        return transformers.Gemma2ForCausalLM(transformers.Gemma2Config(**sizes, **heads, num_key_value_heads=2))
    if name == "GptOss":  # a learned sink beside the scores
        more = {"num_local_experts": 2, "num_experts_per_tok": 1, "num_key_value_heads": 2}
        return transformers.GptOssForCausalLM(transformers.GptOssConfig(**sizes, **heads, **more))
    config = transformers.T5Config(vocab_size=11, d_model=16, d_kv=4, d_ff=32, num_layers=1, num_heads=4)
    config._attn_implementation = "horner"
    return transformers.T5EncoderModel(config)  # a bias of each distance


@pytest.mark.parametrize("name, says", [("Gemma2", "softcap"), ("GptOss", "s_aux"), ("T5", "position_bias")])
def test_other_mathematics_is_refused(name: str, says: str) -> None:
    with pytest.raises(ValueError, match=f"has no {says}, which {name}Attention uses") as error:
        other_mathematics(name)(ids())
    assert "\n" not in str(error.value)


def test_other_masks_are_refused() -> None:
    from transformers.masking_utils import create_causal_mask

    model = llama("horner")
    x = torch.zeros(2, 6, 16)
    blocks = torch.tensor([[-1, 0, 0, -1, -1, -1]]).expand(2, -1)  # tokens 1 and 2 see each other
    with pytest.raises(ValueError, match="this mask is another one"):
        create_causal_mask(model.config, x, None, None, block_sequence_ids=blocks)
    with pytest.raises(ValueError, match="no mask function of one's own"):
        create_causal_mask(model.config, x, None, None, and_mask_function=lambda b, h, q, k: q - k < 3)
    with pytest.raises(ValueError, match="must be boolean"):
        model(ids(), attention_mask=torch.zeros(2, 1, 6, 6))
    with pytest.raises(ValueError, match="knows no taylor:order=2 in a window of 4 tokens"):
        mistral("horner:taylor:order=2")(ids())
    narrow = horner.attn_implementation("window:window=2")
    assert mistral(narrow)(ids()).logits.isfinite().all()


def test_another_version_can_still_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from horner._after_import import after_import

    (tmp_path / "another_version.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)

    def then() -> None:
        from another_version import PreTrainedConfig  # noqa: F401

    after_import("another_version", then)
    with pytest.warns(UserWarning, match="horner does not extend another_version: cannot import name 'PreTrainedConfig'"):
        import another_version  # noqa: F401
    with pytest.warns(UserWarning, match="transformers 5 is known to work"):
        after_import("another_version", then)


def test_import_horner_does_not_import_transformers() -> None:
    program = "import sys, horner; assert 'transformers' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, env=sanitizer.python_environment())


def test_the_order_of_imports_does_not_matter(folder: Path) -> None:
    saved(folder, ["gla:heads=2"])
    line = f"print(transformers.AutoModelForCausalLM.from_pretrained({str(folder)!r}).config.model_type)"
    for first, second in (("horner", "transformers"), ("transformers", "horner")):
        program = f"import {first}; import {second}; {line}"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                              env=sanitizer.python_environment())
        assert done.stdout.strip() == "horner", done.stderr
