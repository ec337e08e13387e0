"""Shows an app: a table of posts to fill in, and their scores."""

from pathlib import Path

import evaluate
import gradio as gr
import pandas as pd


FOLDER = Path(__file__).parent
COLUMNS = ["timeline", "time in seconds", "label", "prediction"]
EXAMPLE = [
    *(["a", 0, "No", "No"], ["a", 60, "Change", "No"], ["a", 90, "No", "Change"]),
    *(["b", 0, "No", "No"], ["b", 30, "Change", "Change"], ["b", 600, "Change", "No"]),
]


def score(posts: pd.DataFrame) -> pd.DataFrame:
    """Returns the scores of the posts. Each row of `posts` is one post."""
    metric = evaluate.load(str(FOLDER / "change_detection.py"), keep_in_memory=True)
    names = sorted({*posts["label"], *posts["prediction"]})
    scores = metric.compute(
        predictions=[names.index(name) for name in posts["prediction"]],
        references=[names.index(name) for name in posts["label"]],
        timelines=posts["timeline"].tolist(),
        times=posts["time in seconds"].astype(float).tolist(),
        label_names=names,
    )
    return pd.DataFrame(scores.items(), columns=["score", "value"]).round(3)


demo = gr.Interface(
    score,
    gr.Dataframe(EXAMPLE, headers=COLUMNS, label="posts"),
    gr.Dataframe(label="scores"),
    title="Change detection in timelines",
    article=(FOLDER / "README.md").read_text(encoding="utf-8").split("---", 2)[2],
    flagging_mode="never",
    analytics_enabled=False,
)

if __name__ == "__main__":
    demo.launch()
