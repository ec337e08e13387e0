r"""Fits what a user would try first on the posts of a run of `benchmarks.quality`, and writes its predictions.

    python3 -m venv peers && peers/bin/pip install -c constraints.txt torch setfit model2vec gguf pandas
    python -m benchmarks.quality --peers_python peers/bin/python --methods default setfit setfit_of_two \
        --model_name_or_path outputs/minilm --seeds 0 --tiage anno_train.json.gz anno_dev.json.gz \
        --output_dir outputs/peers

It needs none of this package. `setfit_of_two` and all others read a post and the one before it, whoever wrote it.
`--static_vectors` is a folder that model2vec distilled. `--chat_model`, a file in the format GGUF, is asked without
training.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler


QUESTION = {"type": "noul", "instructions": "Does the second message begin something new (a topic or a mood)?"}
# For a model without a template of its own
TEMPLATE = "{% for message in messages %}{{ message['content'] }}\n{% endfor %}Answer:"


def read_posts(path: str) -> pd.DataFrame:
    """
    Returns the labelled posts of a table, each with the text before it in its timeline, or an empty one, and with its
    row as its id, as in the other tables of predictions.
    """
    posts = pd.read_csv(path, dtype=str, keep_default_na=False)
    posts["post_id"] = posts.index
    posts["before"] = posts.groupby("timeline_id")["text"].shift(fill_value="")
    return posts[posts["label"] != ""].reset_index(drop=True)


def fit_setfit(train: list[str], labels: np.ndarray, test: list[str], args: argparse.Namespace) -> np.ndarray:
    """Fits SetFit: pairs of all labelled posts, as many as fit the minutes; then a regression on all posts."""
    from datasets import Dataset
    from setfit import SetFitModel, Trainer, TrainingArguments
    from transformers import TrainerCallback

    class StopByClock(TrainerCallback):
        def on_train_begin(self, *others, **kwargs):
            self.end = time.process_time() + 60 * args.minutes

        def on_step_end(self, arguments, state, control, **kwargs):
            control.should_training_stop |= time.process_time() > self.end

    names = np.unique(labels)
    data = Dataset.from_dict({"text": train, "label": np.searchsorted(names, labels)})
    settings = TrainingArguments(
        batch_size=16, num_iterations=20, seed=args.seed, report_to="none", save_strategy="no"
    )
    model = SetFitModel.from_pretrained(args.model_name_or_path)
    Trainer(model, settings, train_dataset=data, callbacks=[StopByClock()]).train()
    return names[np.asarray(model.predict(test))]


def embed(texts: list[str], args: argparse.Namespace) -> np.ndarray:
    """Returns static vectors of distinct texts (texts, width)."""
    from model2vec import StaticModel

    return StaticModel.from_pretrained(args.static_vectors).encode(texts)


def features(posts: pd.DataFrame, args: argparse.Namespace) -> np.ndarray:
    """Returns vectors of each post, of the one before, and their difference (posts, 3 width)."""
    post, before = (embed(posts[name].tolist(), args) for name in ("text", "before"))
    return np.concatenate([post, before, post - before], axis=1)


def ask_chat_model(posts: pd.DataFrame, names: np.ndarray, args: argparse.Namespace) -> np.ndarray:
    """Returns for each post the rarer class if the model says yes rather than no, the other class if not."""
    from transformers import AutoModelForCausalLM, AutoTokenizer, pipeline
    from transformers.decision import DecisionConfig

    file = Path(args.chat_model)
    source = {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name}
    tokenizer, model = AutoTokenizer.from_pretrained(**source), AutoModelForCausalLM.from_pretrained(**source)
    tokenizer.chat_template = tokenizer.chat_template or TEMPLATE
    decide = pipeline("decision", model=model, tokenizer=tokenizer, decision_config=DecisionConfig())
    pairs = posts[["before", "text"]].to_numpy().tolist()
    asked = ({"state": {"messages": pair}, "questions": {"new": QUESTION}} for pair in pairs)
    return names[[int(decide(one)["new"]["noul"] > 0.5) for one in asked]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", choices=["setfit", "setfit_of_two", "static_linear", "static_trees", "chat"])
    parser.add_argument("--train_file")
    parser.add_argument("--test_file")
    parser.add_argument("--output_dir", type=Path)
    parser.add_argument("--labels", nargs="+", help="Ignored: the training posts have the classes.")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--model_name_or_path", help="An encoder.")
    parser.add_argument("--static_vectors", help="A folder of model2vec.")
    parser.add_argument("--chat_model", help="A file in the format GGUF.")
    parser.add_argument("--minutes", type=float, default=10, help="Processor minutes of SetFit's encoder.")
    args = parser.parse_args()
    train, test = read_posts(args.train_file), read_posts(args.test_file)
    labels = train["label"].to_numpy()
    if args.peer.startswith("setfit"):
        columns = ["before", "text"] if args.peer == "setfit_of_two" else ["text"]
        texts = [posts[columns].agg("\n".join, axis=1).tolist() for posts in (train, test)]
        predicted = fit_setfit(texts[0], labels, texts[1], args)
    elif args.peer == "chat":
        predicted = ask_chat_model(test, train["label"].value_counts().index.to_numpy(), args)
    else:
        linear = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, class_weight="balanced", max_iter=2000))
        trees = HistGradientBoostingClassifier(class_weight="balanced", random_state=args.seed)
        model = linear if args.peer == "static_linear" else trees
        predicted = model.fit(features(train, args), labels).predict(features(test, args))
    columns = ["post_id", "timeline_id", "label"]
    test[columns].assign(prediction=predicted).to_csv(args.output_dir / "_predictions.csv", index=False)


if __name__ == "__main__":
    main()
