"""Checks the model against tensors computed with the published implementation."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification, AutoTokenizer, BertConfig

from research.conversion import convert_state_dict, main


FIXTURES = Path(__file__).parent / "fixtures"
ENCODER = {
    "vocab_size": 97,
    "hidden_size": 48,
    "num_attention_heads": 4,
    "num_hidden_layers": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 40,
}


def published_state_dict(case: str) -> dict[str, torch.Tensor]:
    weights = load_file(FIXTURES / "weights_tempo.safetensors")
    if case == "tempo_mha":
        dropped = ("mha_cls.q.", "mha_cls.k.", "mha_cls.v.", "mha_cls.att_proj_linear")
        weights = {name: tensor for name, tensor in weights.items() if not any(part in name for part in dropped)}
        weights |= load_file(FIXTURES / "weights_extra_mha.safetensors")
    if case == "tempo_conn_none":
        weights = {name: tensor for name, tensor in weights.items() if "gate" not in name}
    if case == "ro_main":
        weights = {name: tensor for name, tensor in weights.items() if not name.startswith("classifier.")}
        weights |= load_file(FIXTURES / "weights_extra_ro.safetensors")
    return weights


@pytest.mark.parametrize("case", ["tempo_main", "tempo_notime", "tempo_mha", "tempo_conn_none", "ro_main"])
def test_published_outputs_are_reproduced(case):
    oracle = load_file(FIXTURES / f"{case}.safetensors")
    settings = {"stream_attention": "rotary"} if case == "tempo_notime" else {}
    model = convert_state_dict(published_state_dict(case), BertConfig(**ENCODER), **settings)
    assert not model.config.stream_residual
    present = ~oracle["in.zero_mask"]
    stream_index = torch.arange(5).expand(2, 5).masked_fill(~present, -1).unsqueeze(1)
    elapsed = None
    if "in.time" in oracle:
        elapsed = (oracle["in.time"].max(-1, keepdim=True).values - oracle["in.time"]).float().unsqueeze(1)
    captured = {}
    for index, layer in enumerate(model.tempoformer.stream_layers):
        layer.attention.register_forward_hook(
            lambda module, args, output, index=index: captured.update(
                {f"out.seq{index}.cls_block": args[0][0], f"out.seq{index}.cls_mha": output[0][0]}
            )
        )
    with torch.no_grad():
        output = model.tempoformer(
            oracle["in.input_ids"],
            oracle["in.attention_mask"] * present.unsqueeze(-1),
            stream_index=stream_index,
            elapsed=elapsed,
            output_hidden_states=True,
        )
        logits = model.classifier(output.last_hidden_state, output.pooler_output, output.stream_mask)
    captured["out.seq1.cls_out"] = output.last_hidden_state[:, 0]
    for name, value in captured.items():
        torch.testing.assert_close(
            value[present], oracle[name][present], atol=1e-5, rtol=0, msg=lambda m: f"{name} {m}"
        )
    if "out.local_hidden" in oracle:
        real = (oracle["in.attention_mask"].bool()) & present.unsqueeze(-1)
        torch.testing.assert_close(output.hidden_states[-1][real], oracle["out.local_hidden"][real], atol=1e-5, rtol=0)
    if output.pooler_output is not None:
        pooled = torch.cat((output.pooler_output[:, 0], output.last_hidden_state[:, 0, -1]), dim=-1)
        torch.testing.assert_close(pooled, oracle["out.pooled_output"], atol=1e-5, rtol=0)
    torch.testing.assert_close(logits[:, 0], oracle["out.logits"], atol=1e-5, rtol=0)


def test_command_line_writes_a_model_that_predicts(tmp_path, monkeypatch, tokenization):
    torch.save(published_state_dict("tempo_main"), tmp_path / "published.pt")
    BertConfig(**ENCODER).save_pretrained(tmp_path / "encoder")
    AutoTokenizer.from_pretrained(tokenization).save_pretrained(tmp_path / "encoder")
    arguments = ["conversion", str(tmp_path / "published.pt"), str(tmp_path / "out"), "--encoder"]
    monkeypatch.setattr("sys.argv", [*arguments, str(tmp_path / "encoder")])
    main()
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    expected = convert_state_dict(published_state_dict("tempo_main"), BertConfig(**ENCODER))
    for weight, other in zip(model.parameters(), expected.parameters(), strict=True):
        assert torch.equal(weight, other)
    assert (tmp_path / "out" / "tokenizer.json").exists()


def test_a_state_dict_of_another_model_is_refused():
    with pytest.raises(ValueError, match="tempoformer.encoder.seq_layer"):
        convert_state_dict({"bert.embeddings": torch.zeros(1)}, BertConfig(**ENCODER))
