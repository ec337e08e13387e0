"""Logits by post, whatever order the Trainer samples in."""

import pytest
import torch
from datasets import Dataset
from helpers import VOCABULARY
from transformers import BertConfig, BertForSequenceClassification, BertTokenizer, DataCollatorWithPadding

from modeling_tempoformer.baselines.concatenated import to_sequences
from modeling_tempoformer.training.stream_trainer import StreamTrainer, StreamTrainingArguments


@pytest.mark.parametrize("strategy", ["random", "group_by_length"])
def test_logits_are_those_of_their_posts(tmp_path, strategy):
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
    model = BertForSequenceClassification(BertConfig(vocab_size=len(VOCABULARY), initializer_range=1.0, **sizes))
    tokenizer = BertTokenizer(vocab=VOCABULARY, model_max_length=64)
    words = ["the", "tree", "plane", "flew", "air"]
    texts = [" ".join(words[: 1 + post % 5] * (1 + post // 3)) for post in range(12)]
    names = [f"p{post}" for post in range(12)]
    timelines = Dataset.from_list([{"post_ids": names, "texts": texts, "labels": [0, 1] * 6}])
    items = to_sequences(timelines, tokenizer, window=1)
    items = items.with_format(columns=[name for name in items.column_names if name != "post_id"])
    arguments = StreamTrainingArguments(
        output_dir=str(tmp_path),
        per_device_eval_batch_size=5,
        train_sampling_strategy=strategy,
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = StreamTrainer(model, arguments, data_collator=DataCollatorWithPadding(tokenizer))
    logits, _ = trainer.predict_posts(items, names[::-1])
    model.eval()
    with torch.no_grad():
        expected = torch.cat([model(**tokenizer(text, return_tensors="pt")).logits for text in texts[::-1]])
    assert torch.allclose(logits, expected, atol=1e-5)
    assert trainer.args.train_sampling_strategy == strategy
