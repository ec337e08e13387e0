"""
Lists command lines that the scripts refuse before any training, and the words that the message must contain.

They run in the folder of [`files`]. OUT stands for a new folder. A file is named after its mistake.
"""

import importlib
import json
from pathlib import Path

import pytest
from helpers import ROOT, VOCABULARY, tiny_model, with_other_ids, write_posts
from test_bad_input import assert_named
from transformers import BertConfig, BertTokenizer, DistilBertConfig

from modeling_tempoformer import TemporalBertConfig
from modeling_tempoformer.posts.synthetic import synthetic_posts


COLUMNS = ("timeline_id", "timestamp", "text", "label")
TABLE = "time,text\n1815,sad\n1990,glad\n"
CONTENTS = {
    "unknown.yaml": "windoww: 3\n",
    "calm.csv": "timeline_id,text,label,mood\nann,so,Switch,Calm\nann,so,Switch,calm\n",
    "no_yaml.yaml": "window: [3\n",
    "1815.txt": "sad\nglad\n",
    "1990.txt": "glad\n",
    "empty.txt": "",
    **{"a.csv": TABLE, "b.csv": TABLE},
    **{"words.list": "sad\n", "twice.list": "sad\nsad\n"},
    "no_number.tsv": "sad\tmuch\n",
}


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    for name in ("configuration", "research", "tokenization"):
        (folder / name).symlink_to(ROOT / name)
    posts = list(synthetic_posts(6, seed=0, posts_per_timeline=5))
    write_posts(folder / "posts.csv", posts)
    write_posts(folder / "other.csv", with_other_ids(posts, "other"))
    write_posts(folder / "unlabelled.csv", with_other_ids(posts, "new"), COLUMNS[:3])
    write_posts(folder / "mixed.csv", [{**posts[0], "timeline_id": name} for name in ("ann", "bob", "ann")])
    write_posts(folder / "untimed.csv", with_other_ids(posts, "old"), (COLUMNS[0], *COLUMNS[2:]))
    people = list(dict.fromkeys(post["timeline_id"] for post in posts))
    fold = {"train": people[2:], "validation": people[1:2], "test": people[:1]}
    (folder / "one_fold.json").write_text(json.dumps([fold]))
    (folder / "typo.json").write_text('[{"train": ["a"],\n"test": [}]')
    for name, content in CONTENTS.items():
        (folder / name).write_text(content, encoding="utf-8")
    (folder / "latin.txt").write_bytes("déjà vu\n".encode("latin-1"))
    tiny_model().save_pretrained(folder / "saved")
    BertTokenizer(vocab=VOCABULARY).save_pretrained(folder / "saved")
    for name, config_class in (("bert", BertConfig), ("distilbert", DistilBertConfig)):
        config_class(vocab_size=len(VOCABULARY)).save_pretrained(folder / name)
        BertTokenizer(vocab=VOCABULARY).save_pretrained(folder / name)
    TemporalBertConfig(times=["1815", "1990"]).save_pretrained(folder / "temporal")
    return folder


DEMO = "run_glue_style configuration/demo.yaml --train_file posts.csv --output_dir OUT"
GLUE = "run_glue_style --output_dir OUT"
BASELINE = "research.run_baseline --train_file posts.csv --output_dir OUT --do_train --do_predict"
# Arguments after `--` for all runs.
RUNS = "-- configuration/demo.yaml --train_file posts.csv"
CALM = f"{GLUE} --model_name_or_path saved --test_file calm.csv --do_predict"
SAVED = f"{GLUE} --model_name_or_path saved --test_file posts.csv --do_predict"
SCORE = "tempoformer_live.commands.score --model_name_or_path saved --input_files posts.csv --output_dir OUT"
CROSS = "research.run_cross_validation --output_dir OUT"
MLM = "semantic_change.commands.temporal_mlm --config_name bert --output_dir OUT --do_train --train_files"
BERT_CHANGE = "semantic_change.commands.words --model_name_or_path bert --output_dir OUT"
CHANGE = f"{BERT_CHANGE} --corpora 1815.txt 1990.txt --targets words.list"
VIEW = "modeling_tempoformer.commands.view"
AHEAD = "modeling_tempoformer.commands.ahead --posts_file posts.csv --output OUT/ahead.csv"
METHODS = "research.run_change_methods --corpora 1815.txt 1990.txt --output_dir OUT --targets words.list"
STREAM = "--streaming --max_steps 3 --eval_strategy no --save_strategy no --load_best_model_at_end false"
MIXED = "--do_predict false --labels No-Switch Switch --train_file"
REFUSED = {
    f"{GLUE} --do_train": "--model_name_or_path…--config_name",
    f"{GLUE} --config_name configuration/encoder_tiny.json --tokenizer_name tokenization --do_train": (
        "--dataset_name…--train_file…--validation_file"
    ),
    f"{GLUE} --model_name_or_path saved --train_file posts.csv": "--do_train",
    f"{SAVED} --window 3": "--window 3…4",
    f"{SAVED} --change_step 1": "--change_step 1",
    f"{SAVED} --no_change_label Switch": "--no_change_label Switch",
    f"{SAVED} --validation_file other.csv": "--validation_file…--do_eval",
    f"{SAVED} --test_fraction 0.5": "--test_fraction…--do_train",
    f"{SAVED} --test-fraction=0.5": "--test_fraction…--do_train",
    f"{SAVED} --validation_fraction 0.25": "--validation_fraction…--do_train",
    f"{SAVED} --split_seed 1": "--split_seed…--do_train",
    f"{SAVED} --split_by date": "--split_by…--do_train",
    f"{SAVED} --early_stopping_patience 3": "--early_stopping_patience…--do_train",
    f"{SAVED} --min_steps 3": "--min_steps…--do_train",
    f"{SAVED} --freeze_layers 1": "--freeze_layers…--do_train",
    f"{SAVED} --dataset_config_name en": "--dataset_config_name…--dataset_name",
    f"{SAVED} --do_predict false --do_eval --validation_file posts.csv --no_text": "--no_text…--do_predict",
    f"{DEMO} --no_change_label nonsense": "--no_change_label…No-Switch…'nonsense'",
    f"{DEMO} --no_change_label Switch": "--no_change_label Switch",
    f"{DEMO} --max_steps 3 --min_steps 3": "--min_steps…--max_steps",
    f"{DEMO} --do_predict false --max_predict_samples 3": "--max_predict_samples…--do_predict",
    f"{DEMO} --test_file other.csv --test_fraction 0.5": "--test_fraction",
    f"{DEMO} --validation_file other.csv --test_file unlabelled.csv --split_seed 1": "--split_seed",
    f"{DEMO} --validation_file other.csv --validation_fraction 0.5": "--validation_fraction",
    f"{DEMO} --test_file other.csv --split_by date": "--split_by",
    f"{DEMO} --split_by date --split_seed 1": "--split_seed…by a seed",
    f"{DEMO} --split_by date --columns timestamp=none": "--split_by date…--columns timestamp=",
    f"{DEMO} --split_by date --test_fraction 1": "1.0…between 0 and 1",
    f"{CROSS} {RUNS} --split_by date": "--split_by date",
    f"{CROSS} {RUNS} --split_seed 1": "--split_seed…with folds",
    f"{CROSS} {RUNS} --test_fraction 0.5": "--test_fraction…with folds",
    f"{CROSS} --num_folds 1 {RUNS} --validation_file other.csv": "test…--test_file",
    f"{CROSS} --num_folds 1 {RUNS} --test_file unlabelled.csv": "test split…label",
    f"{CROSS} --num_folds 1 {RUNS} --test_file other.csv --test_fraction 0.5": "--test_fraction…splits are given",
    f"{BASELINE} --method class_prior --no_change_label Switch": "--no_change_label…class_prior",
    f"{DEMO} --do_train false": "encoder_tiny.json…'bert'…--do_train",
    "research.corpora --corpus annomi --file posts.csv --output OUT/annomi.csv": "posts.csv…annomi…'transcript_id'",
    "run_glue_style unknown.yaml --output_dir OUT": "unknown.yaml…windoww",
    "run_glue_style no_yaml.yaml --output_dir OUT": "no_yaml.yaml",
    f"{DEMO} --config_overrides window=3": "--config_overrides…'window=3'",
    f'{DEMO} --config_overrides {{"windoww":3}}': "--config_overrides…windoww",
    f"{DEMO} --window 0": "--window",
    f"{DEMO} --labels No-Switch Switch switch": "'Switch', 'switch'…--labels",
    f"{DEMO} --labels No-Switch Switch Other": "15, 5, 0",
    **{f"{DEMO} --change_step {step}": f"--change_step…0…{step}" for step in ("-3.0", "nan", "inf")},
    AHEAD: "--posts…--days",
    f"{AHEAD} --posts 3 --days 2": "--posts…--days",
    f"{AHEAD} --posts 0": "--posts…1…0",
    **{f"{AHEAD} --days {days}": f"--days…0…{days}" for days in ("0.0", "-1.0", "nan", "inf")},
    f"{AHEAD} --days 2 --columns timestamp=none": "--days…--columns timestamp=…--posts",
    f"{AHEAD} --posts 3 --changes nonsense": "--changes…No-Switch…'nonsense'",
    f"{AHEAD} --posts 3 --changes No-Switch Switch": "--changes…No-Switch, Switch",
    f"{AHEAD} --posts 3 --change_step 1": "--change_step",
    f"{AHEAD} --posts 3 --output posts.csv": "--output posts.csv",
    f"{AHEAD} --posts 3 --output ahead.xlsx": "--output….csv…ahead.xlsx",
    "modeling_tempoformer.commands.ahead --posts_file unlabelled.csv --output OUT/a.csv --posts 3": "--columns label=",
    f"{CALM} --columns label=none --columns state=mood": "'calm'…'Calm'…alike",
    f"{DEMO} --calibrate --labels No-Switch Switch Other": "--calibrate…Other",
    f"{DEMO} --test_file untimed.csv": "'train'…'test'…'validation'",
    f"{DEMO} --validation_file other.csv": "test…--test_file",
    f"{DEMO} --validation_file unlabelled.csv --do_predict false": "validation",
    f"{CROSS} --folds_file typo.json {RUNS}": "typo.json, line 2, column 10",
    f"{DEMO} --alarm 0.8": "--alarm…precision=0.8…'0.8'",
    f"{BASELINE} --method bilstm --alarm recall=0.8": "--alarm…bilstm",
    f"{DEMO} --streaming": "--streaming…--max_steps",
    f"{DEMO} --streaming --max_steps 3": "--eval_strategy epoch…--streaming",
    f"{DEMO} {STREAM} --do_eval": "validation…--validation_file",
    f"{DEMO} {STREAM} --do_predict": "test…--test_file",
    f"{DEMO} {STREAM} --freeze_encoder --do_predict false": "--streaming…trained_encoder.yaml",
    f"{DEMO} {STREAM} --columns split=text": "--columns split=…--streaming",
    f"{DEMO} --columns text": "--columns…text=body…'text='",
    f"{VIEW} --model_name_or_path saved --test_file posts.csv --columns group=text": "--columns…'group=text'",
    f"{DEMO} {STREAM} {MIXED} posts.csv --columns annotator=text": "posts.csv…stream",
    f"{DEMO} --columns group=site": "posts.csv…'site'…--columns group=",
    f"{DEMO} --columns annotator=who": "posts.csv…'who'…--columns annotator=",
    f"{DEMO} --columns split=text": "posts.csv…'text'…row 0",
    f"{DEMO} {STREAM} {MIXED} mixed.csv": "mixed.csv: Row 2…'ann'…row 0…together",
    f"{DEMO} {STREAM} {MIXED} m*d.csv": "mixed.csv: Row 2…'ann'…row 0…together",
    f"{BASELINE} --method class_prior --streaming": "class_prior…--streaming",
    f"{CROSS} {RUNS} --streaming": "--streaming",
    f"{DEMO} --dataloader_drop_last": "--dataloader_drop_last",
    f"{GLUE} --model_name_or_path saved --test_file posts.csv --do_predict --fsdp": "--fsdp…--do_train",
    f"{DEMO} --model_type post_tempoformer --freeze_encoder true --fsdp": "--fsdp…--freeze_encoder",
    f"{DEMO} --early_stopping_patience 2 --eval_strategy no --load_best_model_at_end false": "--metric_for_best_model",
    f"{DEMO} --early_stopping_patience 0": "--early_stopping_patience…1…0",
    f"{DEMO} --min_steps -5": "--min_steps…0…-5",
    f"{DEMO} --num_train_epochs -1": "--num_train_epochs…0…-1",
    f"{DEMO} --per_device_train_batch_size 0": "--per_device_train_batch_size…1…0",
    f"{DEMO} --per_device_eval_batch_size 0": "--per_device_eval_batch_size…1…0",
    f"{DEMO} --gradient_accumulation_steps 0": "--gradient_accumulation_steps…1…0",
    f"{DEMO} --report_to comet_ml": "--report_to comet_ml…install",
    f"{DEMO} --max_seq_length 2": "`max_seq_length`…3…2",
    f"{DEMO} --metric_for_best_model makro_f1": "--metric_for_best_model makro_f1…loss…macro_f1…f1_Switch",
    f'{DEMO} --model_card {{"licence":"mit"}}': "--model_card…licence",
    f"{DEMO} --output_dir posts.csv/below": "posts.csv/below…--output_dir",
    f"{BASELINE} --method post --model_name_or_path temporal": "--method post",
    f"{BASELINE} --method post --model_name_or_path bert --do_train false": "post…--do_train",
    f"{BASELINE} --method post --model_name_or_path bert --calibrate": "--calibrate…--method post",
    f"{BASELINE} --method few_shot --model_name_or_path bert --calibrate": "--calibrate…--method few_shot",
    f"{BASELINE} --method bilstm": "bilstm…--model_name_or_path",
    f"{BASELINE} --method bilstm --model_name_or_path bert --push_to_hub": "--push_to_hub",
    f"{BASELINE} --method class_prior --do_predict false": "class_prior…--do_predict",
    CROSS: "`--`",
    f"{CROSS} {RUNS} --seed 1": "--seed…`--`",
    f"{CROSS} {RUNS} --hub-token x": "--hub_token…`--`",
    f"{CROSS} --folds_file one_fold.json {RUNS}": "one_fold.json…(5 in all)",
    f"{CROSS} {RUNS} --labels No-Switch Switch Other": "Fold 0…0]",
    f"{CROSS} {RUNS} --test_file other.csv": "--train_file",
    f"{CROSS} --methods default -- research/baselines/bilstm.yaml": "--method…`--`…--methods",
    f"{MLM} 1815.txt 1990.txt --times 1815": "1815",
    f"{MLM} 1815.txt 1990.txt --config_name distilbert": "'distilbert'",
    f"{MLM} 1815.txt 1990.txt --max_seq_length 513": "--max_seq_length…513…512",
    f"{MLM} 1815.txt 1990.txt --num_train_epochs 0": "--num_train_epochs",
    f"{MLM} 1815.txt 1990.txt --per_device_train_batch_size 0": "--per_device_train_batch_size",
    f"{MLM} 1815.txt 1990.txt --times 10-20 30-40 --unknown_times unknown": "10…20…30",
    f"{MLM} 1815.txt 1990.txt --do_predict": "--do_predict…--prepend_time",
    f"{MLM} empty.txt 1990.txt": "empty.txt",
    f"{MLM} 1815.txt 1990.txt --test_files 1815.txt": "--test_files…--do_predict",
    f"{MLM} 1815.txt 1990.txt --validation_fraction 0.5": "--validation_fraction…--do_eval",
    f"{MLM} 1815.txt 1990.txt --time_mlm_probability 0.5": "--time_mlm_probability…--prepend_time",
    f"{MLM} latin.txt": "latin.txt…UTF-8",
    f"{MLM} a.csv b.csv": "a.csv…b.csv",
    f"{MLM} a.csv --time_column year": "'year'",
    f"{MLM} 1815.txt 1990.txt --streaming": "--streaming…--max_steps",
    f"{MLM} 1815.txt 1990.txt {STREAM} --do_eval": "validation…--validation_files",
    f"{MLM} empty.txt 1990.txt {STREAM}": "empty.txt",
    f"{BERT_CHANGE} --corpora 1815.txt 1990.txt": "--targets…--truth",
    f"{CHANGE} --times 1815": "1815",
    f"{CHANGE} --num_samples 0": "--num_samples",
    f"{CHANGE} --num_samples 9 --min_usages 10": "--num_samples…9…--min_usages…10",
    f"{CHANGE} --targets twice.list": "twice.list…line 2…'sad'",
    f"{CHANGE} --discover 5": "--discover…--targets",
    f"{BERT_CHANGE} --dwug a.csv --discover 5": "--discover…--dwug",
    f"{BERT_CHANGE} --dwug a.csv --times 1815 1990 --targets words.list --with_compounds": "--with_compounds…--dwug",
    f"{CHANGE} --senses a.csv": "a.csv…line 1…'word'",
    f"{CHANGE} --judgments a.csv": "a.csv…line 2…identifier1",
    f"{BERT_CHANGE} --dwug a.csv --times 1815 1990 --targets words.list --time_column year": "--time_column…--dwug",
    f"{SCORE} --columns speaker=text": "--columns speaker…--keep_columns",
    f"{CHANGE} --truth no_number.tsv": "no_number.tsv…line 1…much",
    f"{CHANGE} --corpora 1990.txt 1815.txt": "--corpora…1990…1815",
    f"{CHANGE} --corpora a.csv": "a…--times",
    f"{CHANGE} --corpora a.csv --times 1815 1990": "'date'…--time_column",
    f"{CHANGE} --corpora 1815.txt --times 1815 1990": "1815.txt…no date…names is in 1990",
    f"{BERT_CHANGE} --dwug a.csv --targets words.list": "a.csv…uses.csv",
    f"{METHODS} --measures clusters": "--measures clusters…--model_name_or_path",
    "tempoformer_live.commands.forget --model *": "16 digits…'*'",
}


@pytest.mark.parametrize("command", REFUSED)
def test_a_command_is_refused(files, tmp_path, monkeypatch, command):
    monkeypatch.chdir(files)
    script, *arguments = command.replace("OUT", str(tmp_path / "out")).split()
    with pytest.raises(ValueError) as raised:
        importlib.import_module(script).main(arguments)
    assert_named(REFUSED[command], raised.value)
