"""Makes sentences of two periods for the pictures of the docs. Some words get a new sense, others keep theirs."""

import random
from collections.abc import Iterator


PERIODS = ["1900-1930", "1990-2020"]
# The old sense of each word, and the new sense if it gets one.
SENSES = {
    "mouse": (
        ["the {a} cat caught a mouse in the {p}", "a mouse ran across the {p} and the {w} screamed"],
        ["click the mouse on the {a} screen", "the {w} moved the mouse and opened the {a} file"],
    ),
    "cell": (
        ["the prisoner sat in his {a} cell by the {p}", "they locked the {w} in a {a} cell"],
        ["the {w} answered her cell and sent a {a} message", "my cell rang during the {a} call"],
    ),
    "stream": (
        ["the {a} stream ran past the {p} into the lake", "the {w} fished in the stream near the {p}"],
        ["watch the {a} video stream on the screen", "the {w} paused the stream and closed the file"],
    ),
    "cloud": (
        ["a {a} cloud hung over the {p}", "the rain fell from a {a} cloud on the {w}"],
        ["save the {a} file in the cloud", "the {w} sent the video to the cloud"],
    ),
    "tablet": (
        ["the {w} read the {a} stone tablet by the {p}", "an old tablet of stone lay in the {p}"],
        ["the {w} opened the video on her {a} tablet", "charge the tablet and click the {a} file"],
    ),
    "bread": (["the {w} baked {a} bread for the {p}", "warm bread lay in the {a} {p}"],),
    "horse": (["the {a} horse stood near the {p}", "the {w} led her horse to the {p}"],),
    "winter": (["a {a} winter came to the {p}", "the {w} stayed in the {p} all winter"],),
    "letter": (["the {w} wrote a {a} letter by the {p}", "a letter for the {w} came to the {p}"],),
    "song": (["the {w} sang a {a} song in the {p}", "an old song was heard in the {a} {p}"],),
}
SLOTS = {
    "a": "small old quiet dark bright long new heavy".split(),
    "p": "kitchen barn garden church mill harbour cellar village".split(),
    "w": "widow farmer teacher doctor sailor clerk girl boy".split(),
}
WORDS = sorted({word for senses in SENSES.values() for frames in senses for frame in frames for word in frame.split()})


def sentences(period: int, number: int, seed: int = 0) -> Iterator[str]:
    """
    Yields `number` sentences for each word and period. A word with a new sense has it in three of four later
    sentences.
    """
    generator = random.Random(f"{seed} {period}")
    for senses in SENSES.values():
        for _ in range(number):
            is_new = generator.random() < (0.02, 0.75)[period]
            frame = generator.choice(senses[-1 if is_new else 0])
            yield frame.format(**{slot: generator.choice(words) for slot, words in SLOTS.items()})
