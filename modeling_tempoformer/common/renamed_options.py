"""Names the new spelling of an option that was renamed."""

from collections.abc import Collection


COMPARE = "`tempoformer compare --num_folds 1 --seeds 42 43` trains with several seeds"
FOLDS = "`tempoformer compare --folds_file FILE` reads folds, and in Python `fine_tune(..., fold=FOLD)` one of them"
# The options of 0.2 that are gone, and what to give
RENAMED = {
    "precision": "give --alarm precision=0.8",
    "recall": "give --alarm recall=0.7",
    "alarm_rate": "give --alarm rate=0.05",
    "alarm_days": "give --alarm rate=0.05/30d",
    "miss_rate": "give --alarm missed=0.2",
    "min_epochs": "give --num_train_epochs",
    "seeds": COMPARE,
    "folds_file": FOLDS,
    "fold": FOLDS,
    "timeline_column": "give --columns timeline=NAME",
    "timestamp_column": "give --columns timestamp=NAME",
    "text_column": "give --columns text=NAME",
    "label_column": "give --columns label=NAME",
    "id_column": "give --columns id=NAME",
    "speaker_column": "give --columns speaker=NAME",
    "state_column": "give --columns state=NAME",
    "annotator_column": "give --columns annotator=NAME",
    "group_column": "give --columns group=NAME",
    "split_column": "give --columns split=NAME",
    "one_timeline": "give --columns timeline=none",
    "horizon": "`tempoformer ahead posts.csv --posts 3 --output ahead.csv` writes a table with such labels",
    "task_name": "`python -m research.corpora --corpus NAME --file FILE --output FILE` writes a corpus as a table",
    "hub_strategy": "it is always end, as other strategies push checkpoints; leave it out",
    "remove_unused_columns": "it is always false; leave it out",
}
# The default's name among the methods of `tempoformer compare` in 0.2
RENAMED_METHOD = "tempoformer"


def check_renamed(given: Collection[str], names: Collection[str]):
    """Raises a `ValueError` for a given option that was renamed, unless it is among the command's `names`."""
    for name in sorted(given):
        if name in RENAMED and name not in names:
            raise ValueError(f"--{name} is gone: {RENAMED[name]}.")
