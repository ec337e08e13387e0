r"""
The default model as a `ForecasterModel` of ConvoKit 5: will what the label says happen later in this conversation?

Its arguments are `corpus --label has_event --encoder sentence-transformers/all-MiniLM-L6-v2`. ConvoKit's forecasters
need its extra `llm`, which asks for a GPU.
`corpus` is a folder of ConvoKit whose conversations have the label (0 or 1) and a `split` (train, val or test) in
their metadata. ConvoKit chooses the threshold on val, and `summarize` scores test.
"""

import argparse
from collections.abc import Iterable
from pathlib import Path

import pandas as pd
from convokit import Corpus, Utterance
from convokit.forecaster import Forecaster, ForecasterModel
from transformers import pipeline

from modeling_tempoformer import fine_tune


class TempoFormerForecaster(ForecasterModel):
    """
    Learns the label of a conversation at each of its utterances.

    Args:
        encoder (`str`): A checkpoint that `AutoModel` loads.
        output_dir (`str`): Folder of the table of utterances and of the trained model.
        decision_policy (`DecisionPolicy`, *optional*): When to forecast. Default: a threshold.
    """

    def __init__(self, encoder: str, output_dir: str, decision_policy=None):
        super().__init__(decision_policy)
        self.encoder, self.output_dir, self.pipe, self.scores = encoder, Path(output_dir), None, {}

    def fit(self, contexts: Iterable, val_contexts: Iterable | None = None):
        """Trains the model on `contexts`, and chooses the policy's threshold on `val_contexts`."""
        self.fit_belief_estimator(contexts)
        val_contexts = list(val_contexts or [])
        for context in whole_conversations(val_contexts):
            self.read(context)
        self.fit_decision_policy([], val_contexts)

    def fit_belief_estimator(self, contexts: Iterable, val_contexts: Iterable | None = None):
        """Trains the model; which timelines each member holds out is its own affair."""
        self.output_dir.mkdir(parents=True, exist_ok=True)
        utterances = [utterance for context in whole_conversations(contexts) for utterance in context]
        posts = pd.DataFrame(map(to_post, utterances)).rename(columns={"post_id": "id"})
        posts["label"] = [self.labeler(utterance.get_conversation()) for utterance in utterances]
        posts.to_csv(file := self.output_dir / "posts.csv", index=False)
        fine_tune(self.encoder, train_file=str(file), output_dir=str(self.output_dir / "model"), watch="1")
        self.pipe = pipeline("stream-classification", model=str(self.output_dir / "model"))

    def read(self, context: list[Utterance]):
        """Keeps the scores of a context's utterances. None depends on later ones, so that all are read at once."""
        stream = pd.DataFrame(map(to_post, context)).drop(columns="timeline_id").to_dict("list")
        for utterance, answer in zip(context, self.pipe(stream), strict=True):
            self.scores[utterance.id] = answer["watched_probability"]

    def score(self, context) -> float:
        """Returns the probability of label 1 at a context's newest utterance."""
        if context.current_utterance.id not in self.scores:
            self.read(context.context)
        return self.scores[context.current_utterance.id]

    def transform(self, contexts: Iterable, forecast_attribute_name: str, forecast_prob_attribute_name: str):
        """Returns a table of scores and forecasts, a row for each context."""
        contexts = list(contexts)
        for context in whole_conversations(contexts):
            self.read(context)
        decided = {
            context.current_utterance.id: self.decision_policy.decide(context, self.score) for context in contexts
        }
        columns = {forecast_prob_attribute_name: 0, forecast_attribute_name: 1}
        return pd.DataFrame(
            {name: [answer[at] for answer in decided.values()] for name, at in columns.items()}, index=list(decided)
        )


def whole_conversations(contexts: Iterable) -> list[list[Utterance]]:
    """Returns the longest context of each conversation."""
    longest = {}
    for context in contexts:
        longest[context.conversation_id] = max(longest.get(context.conversation_id, []), context.context, key=len)
    return list(longest.values())


def to_post(utterance: Utterance) -> dict[str, str]:
    """Returns the columns of an utterance."""
    speaker, conversation = utterance.speaker.id, utterance.conversation_id
    columns = {"timeline_id": conversation, "post_id": utterance.id, "text": utterance.text, "speaker": speaker}
    return columns if utterance.timestamp is None else {**columns, "timestamp": float(utterance.timestamp)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus")
    parser.add_argument("--label", required=True)
    parser.add_argument("--encoder", required=True)
    parser.add_argument("--output_dir", default="outputs/forecaster")
    args = parser.parse_args()
    corpus = Corpus(args.corpus)
    of = {
        part: lambda context, part=part: context.current_utterance.get_conversation().meta["split"] == part
        for part in ("train", "val", "test")
    }
    forecaster = Forecaster(TempoFormerForecaster(args.encoder, args.output_dir), args.label)
    forecaster.fit(corpus, of["train"], of["val"])
    forecaster.transform(corpus, of["test"])
    forecaster.summarize(corpus, lambda conversation: conversation.meta["split"] == "test")


if __name__ == "__main__":
    main()
