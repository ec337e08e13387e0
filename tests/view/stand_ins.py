"""Makes random explanations in the form of the pipeline's `explain`, and pages of them."""

import random

from modeling_tempoformer.view.timeline_page import timeline_page
from modeling_tempoformer.view.timelines import to_timeline


NAMES = ["No-Switch", "Switch"]
WORDS = "we met again today and I was glad but then it rained so nobody came and all of it felt so quiet".split()


def explained_post(chance: random.Random, stream: list[int], names: list[str], text: str) -> dict:
    weights = [chance.random() for _ in names]
    scores = [weight / sum(weights) for weight in weights]
    attention = [[chance.random() for _ in stream] for _ in range(2)]
    best = max(range(len(names)), key=scores.__getitem__)
    return {
        "text": text,
        "timestamp": None,
        "label": names[best],
        "score": scores[best],
        "probabilities": dict(zip(names, scores, strict=True)),
        "stream": stream,
        "attention": [[weight / sum(layer) for weight in layer] for layer in attention],
        # The effects of each post of the stream, of the gap before the newest, and of its position.
        "effects": {name: [chance.gauss(0, 0.1) for _ in range(len(stream) + 2)] for name in names},
        "log_odds_effects": {name: [chance.gauss(0, 1) for _ in range(len(stream) + 2)] for name in names},
    }


def explained_timelines(
    number: int,
    length: int,
    names: list[str] = NAMES,
    window: int = 20,
    words: int = 40,
    labelled: bool = True,
    timed: bool = True,
    seed: int = 0,
) -> list[dict]:
    """
    Returns timelines for the page. A post has about `words` words. Every tenth post has no label and follows a
    silence.
    """
    chance = random.Random(seed)
    timelines = []
    for timeline in range(number):
        posts, time = [], 1.7e9 + 1000 * timeline
        # Timelines have different lengths, so they can be sorted by length.
        for index in range(length + timeline % 5 - 2):
            stream = list(range(max(0, index - window + 1), index + 1))
            text = " ".join(chance.choices(WORDS, k=chance.randint(1, 2 * words)))
            post = explained_post(chance, stream, names, text)
            time += chance.uniform(1, 7200) * (1000 if index % 10 == 9 else 1)
            post["timestamp"] = time if timed else None
            if labelled:
                post["actual"] = None if index % 10 == 9 else chance.choices(names, range(len(names), 0, -1))[0]
            posts.append(post)
        timelines.append({"id": f"person {timeline}", "posts": posts})
    return timelines


def page_of(timelines: list[dict], names: list[str], **settings) -> str:
    """Returns the page of timelines."""
    read = [to_timeline(timeline["id"], timeline["posts"], names) for timeline in timelines]
    return timeline_page(read, names, **settings)


def with_states(timelines: list[dict], names: list[str], seed: int = 0) -> list[dict]:
    """Gives each post of timelines an answer about its state, one of `names`, with a mean if these are numbers."""
    chance = random.Random(seed)
    for post in (post for timeline in timelines for post in timeline["posts"]):
        weights = [chance.random() ** 3 for _ in names]
        shares = dict(zip(names, (weight / sum(weights) for weight in weights), strict=True))
        best = max(shares, key=shares.get)
        post["state"] = {"label": best, "score": shares[best], "probabilities": shares}
        if all(name.lstrip("-").replace(".", "").isdigit() for name in names):
            post["state"]["mean"] = sum(float(name) * share for name, share in shares.items())
    return timelines
