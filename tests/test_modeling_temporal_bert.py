"""Checks BERT and RoBERTa with temporal attention against the published formula and the plain encoders."""

import json
from pathlib import Path

import pytest
import torch
import transformers
from helpers import TINY, dated_bert, dated_config
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file
from transformers import pipeline

import modeling_tempoformer
from modeling_tempoformer import (
    BertWithTemporalAttention,
    BertWithTemporalAttentionForMaskedLM,
    TemporalBertConfig,
    TemporalRobertaConfig,
)
from modeling_tempoformer.modeling_temporal_bert import (
    TemporalSelfAttention,
    TimeEmbedding,
    collect_times,
)


FIXTURES = Path(__file__).parent / "fixtures"
TINY = {**TINY, "num_hidden_layers": 2, "initializer_range": 0.3}
TIMES = ["1810-1860", "1861-1959", "1960-2010"]
TASKS = ("MaskedLM", "SequenceClassification", "TokenClassification")
HEADS = [f"{family}{{}}For{task}" for family in ("Bert", "Roberta") for task in TASKS]
MODES = [{}, {"temporal_residual": True}, {"temporal_attention": "scaled"}, {"temporal_attention": "none"}]


def make_model(model_class=BertWithTemporalAttentionForMaskedLM, seed: int = 0, **settings):
    """Returns a tiny model whose output depends on time."""
    torch.manual_seed(seed)
    config_class = TemporalBertConfig if "Bert" in model_class.__name__[:4] else TemporalRobertaConfig
    attention = settings.pop("attn_implementation", None)
    config = config_class(**{"times": TIMES, "time_initializer_range": 1.0, **TINY, **settings})
    model = model_class._from_config(config, attn_implementation=attention).eval()
    for name, parameter in model.named_parameters():
        if name.endswith("residual.weight"):
            torch.nn.init.normal_(parameter)
    return model


def make_batch() -> dict[str, torch.Tensor]:
    """Returns texts with one time, with a time for each token, and with an unknown time, and a shorter text."""
    generator = torch.Generator().manual_seed(0)
    input_ids = torch.randint(5, 60, (4, 7), generator=generator)
    attention_mask = torch.ones(4, 7, dtype=torch.long)
    attention_mask[3, 4:] = 0
    time_ids = torch.tensor([[3] * 7, [3, 4, 5, 2, 4, 1, 3], [2] * 7, [5, 5, 5, 5, 0, 0, 0]])
    return {"input_ids": input_ids, "attention_mask": attention_mask, "time_ids": time_ids}


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("case", ["ta_one_time", "ta_masked_one_time"])
def test_the_paper_s_formula(case, attention):
    oracle = load_file(FIXTURES / f"{case}.safetensors")
    config = TemporalBertConfig(
        hidden_size=48, num_attention_heads=4, times=list("abcd"), attn_implementation=attention
    )
    layer = TemporalSelfAttention(config).eval()
    layer.load_state_dict(load_file(FIXTURES / "weights_ta.safetensors"))
    # The published table has no row for an unknown time.
    table = torch.cat((oracle["in.time_table"][:2], torch.full((1, 48), 9.0), oracle["in.time_table"][2:]))
    embeddings = TimeEmbedding.from_pretrained(table)
    time_ids = oracle["in.time_ids"] + (oracle["in.time_ids"] >= 2)
    real = oracle["in.attention_mask"].bool()
    mask = real[:, None, None].expand(-1, 1, 7, 7)
    if attention == "eager":
        mask = torch.zeros(mask.shape).masked_fill(~mask, torch.finfo(torch.float32).min)
    times = collect_times(embeddings, config, time_ids, real)
    context, weights = layer(oracle["in.hidden_states"], mask, text_times=times)
    torch.testing.assert_close(context[real], oracle["paper.context"][real].float(), atol=1e-5, rtol=0)
    if attention == "eager":
        expected = oracle["paper.attention_probs"].float().transpose(1, 2)[real]
        torch.testing.assert_close(weights.transpose(1, 2)[real], expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize(("batch_size", "length"), [(8, 6), (1, 40)])
def test_the_product_is_the_formula_token_by_token(residual, batch_size, length):
    """Each token has a time. Padding, its time and unknown times add nothing."""
    times = [str(year) for year in range(1800, 1850)]
    model = make_model(BertWithTemporalAttention, times=times, temporal_residual=residual)
    layer, embeddings = model.encoder.layer[0].attention.self, model.time_embeddings
    time_ids = torch.randint(0, 53, (batch_size, length), generator=torch.Generator().manual_seed(0))
    mask = torch.ones(batch_size, length).bool()
    mask[0, -2:] = False
    query = torch.randn(batch_size, 2, length, 8)
    actual = layer.apply_time(query, collect_times(embeddings, model.config, time_ids, mask))
    for text in range(batch_size):
        real = [time for time, is_real in zip(time_ids[text].tolist(), mask[text], strict=True) if is_real]
        projected = layer.time(embeddings.weight[[time for time in real if time not in (0, 2)]])
        for head in range(2):
            t = projected[:, 8 * head : 8 * head + 8]
            product = t.T @ t / t.norm()
            if residual:
                product = torch.eye(8) + layer.residual.weight[head] * product
            torch.testing.assert_close(actual[text, head], query[text, head] @ product, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("head", HEADS)
def test_a_plain_checkpoint_loads_whole_and_starts_as_itself(tmp_path, head):
    torch.manual_seed(0)
    plain_class = getattr(transformers, head.format(""))
    plain = plain_class(plain_class.config_class(**TINY)).eval()
    plain.save_pretrained(tmp_path)
    temporal_class = getattr(modeling_tempoformer, head.format("WithTemporalAttention"))
    batch = make_batch()
    times = batch.pop("time_ids")
    for settings in ({"temporal_residual": True}, {"temporal_attention": "none"}, {}):
        model, info = temporal_class.from_pretrained(tmp_path, times=TIMES, output_loading_info=True, **settings)
        assert not info["unexpected_keys"] and all(
            "time" in key or "residual.weight" in key for key in info["missing_keys"]
        )
        weights = model.state_dict()
        assert all(torch.equal(weights[name], weight) for name, weight in plain.state_dict().items())
        change = (model(**batch, time_ids=times).logits - plain(**batch).logits).abs().max()
        assert change < 1e-5 if settings else change > 1e-3


@pytest.mark.parametrize("settings", MODES, ids=str)
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_a_text_does_not_depend_on_its_batch(settings, attention):
    model, batch = make_model(attn_implementation=attention, **settings), make_batch()
    together = model(**batch).logits
    for text, length in enumerate(batch["attention_mask"].sum(-1).tolist()):
        alone = model(**{name: tensor[text : text + 1, :length] for name, tensor in batch.items()}).logits
        torch.testing.assert_close(together[text : text + 1, :length], alone, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("settings", MODES, ids=str)
def test_time_matters_unless_it_is_unknown(settings):
    model, batch = make_model(**settings), make_batch()
    plain = make_model(temporal_attention="none")
    plain.load_state_dict(model.state_dict(), strict=False)
    logits, expected = model(**batch).logits, plain(**batch).logits
    torch.testing.assert_close(logits[2], expected[2], atol=1e-5, rtol=1e-5)
    changes = settings.get("temporal_attention") != "none"
    assert (not torch.allclose(logits[1], expected[1], atol=1e-3)) == changes
    later = {**batch, "time_ids": batch["time_ids"].where(batch["time_ids"] != 3, 4)}
    assert (not torch.allclose(model(**later).logits[0], logits[0], atol=1e-3)) == changes


def assert_same_gradients(model: torch.nn.Module, other: torch.nn.Module):
    for (name, parameter), same in zip(model.named_parameters(), other.parameters(), strict=True):
        assert parameter.grad is not None, name
        torch.testing.assert_close(parameter.grad, same.grad, atol=1e-5, rtol=1e-4, msg=lambda m: f"{name}: {m}")


@pytest.mark.parametrize(
    ("settings", "reentrant"), [({}, True), ({}, False), ({"temporal_residual": True}, False)], ids=str
)
def test_every_parameter_gets_its_gradient(settings, reentrant):
    """The same holds with gradient checkpointing."""
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    plain, model = (make_model(**settings, **dropout).train() for _ in range(2))
    batch = make_batch()
    batch["time_ids"][3, :3] = torch.tensor([1, 3, 4])
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
    model.enable_input_require_grads()
    for one in (plain, model):
        one(**batch, labels=batch["input_ids"]).loss.backward()
    assert_same_gradients(model, plain)
    used = model.bert.time_embeddings.weight.grad.abs().sum(-1) > 1e-6
    assert used.tolist() == [False, True, False, True, True, True]


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("model_class", [BertWithTemporalAttention, BertWithTemporalAttentionForMaskedLM])
def test_what_the_library_passes_to_any_model_changes_nothing(model_class, attention):
    model, batch = make_model(model_class, attn_implementation=attention), make_batch()
    passed = {"num_items_in_batch": torch.tensor(7), "use_cache": False, "output_attentions": None}
    with torch.no_grad():
        torch.testing.assert_close(model(**batch, **passed)[0], model(**batch)[0])


def test_compiled_is_the_same():
    model, batch = make_model(), make_batch()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        torch.testing.assert_close(compiled(**batch).logits, model(**batch).logits, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("scaling", "expected"),
    [("linear", [1.0, 2.0, 3.0]), ("exponential", [1.0, 2.0, 4.0]), ("documents", [0.1, 0.3, 0.6])],
)
def test_scaled_baselines(scaling, expected):
    """A text of one time gets plain attention at another temperature."""
    settings = {"temporal_attention": "scaled", "time_scaling": scaling, "time_document_counts": [10, 30, 60]}
    model, plain, batch = make_model(**settings), make_model(temporal_attention="none"), make_batch()
    plain.load_state_dict(model.state_dict())
    for time, factor in enumerate(expected, 3):
        batch["time_ids"] = time * batch["attention_mask"]
        for layer in plain.bert.encoder.layer:
            layer.attention.self.scaling = 8**-0.5 * factor
        torch.testing.assert_close(plain(**batch).logits[:3], model(**batch).logits[:3], atol=1e-5, rtol=1e-5)


def test_more_times_keep_the_embeddings_of_those_before():
    model, batch = make_model(), make_batch()
    logits = model(**batch).logits
    more_times = [TIMES[0], "1861-1910", *TIMES[1:]]
    model.bert.resize_time_embeddings(more_times)
    moved = batch["time_ids"] + (batch["time_ids"] >= 4)
    torch.testing.assert_close(model(**{**batch, "time_ids": moved}).logits, logits, atol=1e-5, rtol=0)
    assert model.config.times == more_times and model.bert.time_embeddings.weight[4].abs().sum() > 0
    for refused, named in ((more_times[:2], "1861-1959"), ([*more_times, TIMES[0]], "1810-1860")):
        with pytest.raises(ValueError, match=named):
            model.bert.resize_time_embeddings(refused)
        assert model.config.times == more_times
    # Frozen embeddings stay frozen.
    for is_trained in (True, False):
        model.bert.time_embeddings.requires_grad_(is_trained)
        model.bert.resize_time_embeddings(model.config.times)
        assert model.bert.time_embeddings.weight.requires_grad is is_trained


@pytest.mark.parametrize(("size", "millions"), [("base", 116.61), ("small", 29.85), ("tiny", 4.45)])
def test_sizes_have_the_parameters_of_the_paper(size, millions):
    """The sizes are as in table 4, with two time points. The encoder has the head that it is trained with."""
    fields = json.loads((Path(__file__).parents[1] / "configuration" / f"bert_{size}.json").read_text())
    del fields["model_type"]
    with torch.device("meta"):
        model = BertWithTemporalAttentionForMaskedLM(TemporalBertConfig(**fields, times=["1810-1860", "1960-2010"]))
    assert sum(parameter.numel() for parameter in model.parameters()) / 1e6 == pytest.approx(millions, abs=0.005)


def test_times_that_scale_far_stay_finite_in_float16():
    """Float16 cannot represent the factor from the 17th time on. Attention then goes to one token, as in float32."""
    times = [str(year) for year in range(1800, 1860)]
    scaled = {"times": times, "temporal_attention": "scaled", "time_scaling": "exponential"}
    model, batch = make_model(BertWithTemporalAttention, **scaled), make_batch()
    batch["time_ids"] = torch.tensor([[3 + 10], [3 + 16], [3 + 17], [3 + 59]]).expand(4, 7).contiguous()
    # The second layer's queries are 0. Any factor keeps them 0, and their gradients must stay finite.
    torch.nn.init.zeros_(model.encoder.layer[1].attention.self.query.weight)
    expected = model(**batch).last_hidden_state
    expected.sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
    with torch.no_grad():
        actual = model.half()(**batch).last_hidden_state.float()
    real = batch["attention_mask"].bool()
    torch.testing.assert_close(actual[real], expected[real], atol=2e-2, rtol=0)


def test_long_time_vectors_stay_finite_in_float16():
    """The square of their norm overflows in float16, in which autocast multiplies."""
    model, batch = make_model(BertWithTemporalAttention, time_initializer_range=30.0), make_batch()
    times = collect_times(model.time_embeddings, model.config, batch["time_ids"], batch["attention_mask"])
    attention = model.encoder.layer[0].attention.self
    query = torch.randn(4, 2, 7, 8)
    with torch.no_grad():
        projected = attention.time(model.time_embeddings.weight).unflatten(-1, (2, 8))
        assert 7 * projected.square().sum(-1).max() > torch.finfo(torch.float16).max
        expected = attention.apply_time(query, times)
        with torch.autocast("cpu", dtype=torch.float16):
            actual = attention.apply_time(query, times).float()
    torch.testing.assert_close(actual, expected, atol=0.02 * expected.abs().max().item(), rtol=0)


@pytest.mark.parametrize("head", [HEADS[0], HEADS[3]])
def test_sparse_prediction_has_the_same_loss_and_gradients(head):
    model_class = getattr(modeling_tempoformer, head.format("WithTemporalAttention"))
    dense, sparse, batch = make_model(model_class), make_model(model_class), make_batch()
    sparse.sparse_prediction = True
    batch["labels"] = batch["input_ids"].where(torch.arange(7) % 3 == 1, -100)
    first, second = dense(**batch), sparse(**batch)
    assert second.logits.shape == (int((batch["labels"] != -100).sum()), 60)
    torch.testing.assert_close(second.loss, first.loss)
    first.loss.backward()
    second.loss.backward()
    assert_same_gradients(sparse, dense)
    batch["labels"] = torch.full_like(batch["labels"], -100)
    assert sparse(**batch).loss.item() == pytest.approx(0)
    torch.testing.assert_close(sparse(**make_batch()).logits, dense(**make_batch()).logits, atol=1e-5, rtol=0)


def test_an_adapter_trains_alpha_when_it_is_saved_with_it():
    model, batch = make_model(temporal_residual=True), make_batch()
    new = ["time_embeddings", "time", "residual"]
    adapted = get_peft_model(model, LoraConfig(r=2, target_modules=["query"], modules_to_save=new))
    adapted(**batch, labels=batch["input_ids"]).loss.backward()
    alphas = [p for name, p in adapted.named_parameters() if "residual.modules_to_save" in name]
    assert len(alphas) == 2 and all(alpha.grad.abs().sum() > 0 for alpha in alphas)


@pytest.mark.parametrize(
    ("task", "head"), [*zip(("fill-mask", "text-classification", "token-classification"), HEADS[:3], strict=True)]
)
def test_saved_models_work_in_the_librarys_pipelines(tmp_path, task, head):
    """The pipelines give no times, so they are unknown."""
    tokenizer = dated_bert(model_max_length=16, prepend_time=True)
    config = dated_config(vocab_size=len(tokenizer), prepend_time=True)
    model = getattr(modeling_tempoformer, head.format("WithTemporalAttention"))(config).eval()
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path)
    (best, *_) = pipeline(task, model=str(tmp_path), trust_remote_code=True)("the [MASK] flew")
    if task == "text-classification":
        batch = dated_bert(prepend_time=True, unknown_times="unknown")("the [MASK] flew", return_tensors="pt")
        scores = model(**batch).logits.softmax(-1)[0]
        assert best["score"] == pytest.approx(scores.max().item(), abs=1e-5)
