"""Makes diaries for the pictures of the docs. People's moods change now and then, and some write nothing for weeks."""

import random
from collections.abc import Iterator
from typing import Any


HOUR, DAY = 3600.0, 86400.0
NAMES = "Ada Ben Cleo Dan Edith Finn Gita Hugo Ida Jon Kaia Leo Mona Nils Olga Paul Rosa Sam Tess Udo Vera".split()
GOOD = [
    "a long walk by the river, I feel light today",
    "laughed with my sister until we cried",
    "slept well for once and woke up hopeful",
    "the choir was wonderful tonight, I am so grateful",
    "baked bread with the children, a happy afternoon",
    "finished the big report and I am proud of it",
    "the first warm evening on the balcony, all is well",
    "my old friend called, what a joy",
    "cycled to work in the sun and sang all the way",
    "I feel strong again after the holiday",
]
LOW = [
    "could not sleep again and everything feels heavy",
    "cried in the car before work, I do not know why",
    "I cannot face anyone today",
    "nothing helps and nobody asks",
    "so tired of pretending that I am fine",
    "stayed in bed until noon, feeling empty",
    "I snapped at mother again and hate myself for it",
    "the fear is back, my hands will not stop shaking",
    "another lonely evening, what is the point",
    "lost my appetite and my patience",
]
PLAIN = [
    "groceries, laundry, then a bit of television",
    "dentist at nine, the bus was late",
    "meeting moved to friday",
    "it rained all day",
    "changed the tyres of the bicycle",
    "read two chapters before dinner",
    "new neighbours moved in downstairs",
    "the train to town was full",
]
SENTENCES = [*GOOD, *LOW, *PLAIN]


def diaries(num_people: int, seed: int) -> Iterator[dict[str, Any]]:
    """
    Returns posts of people with `timeline_id`, `timestamp`, `text` and `label`. A post is a Switch if its mood differs
    from that of the last post with a mood, unless the writer was silent for a week or more before it. One label in
    thirty is wrong.
    """
    generator = random.Random(seed)
    for person in range(num_people):
        name = NAMES[person % len(NAMES)] + (f" {person // len(NAMES) + 1}" if person >= len(NAMES) else "")
        now, mood = generator.uniform(1.70e9, 1.73e9), generator.choice([GOOD, LOW])
        last_mood = None
        for _ in range(generator.randint(14, 40)):
            silence = generator.uniform(8, 30) * DAY if generator.random() < 0.08 else 0
            now += silence or generator.uniform(2, 40) * HOUR
            if generator.random() < 0.18:
                mood = LOW if mood is GOOD else GOOD
            shown = PLAIN if generator.random() < 0.25 else mood
            turned = shown is not PLAIN and last_mood not in (None, shown) and not silence
            last_mood = last_mood if shown is PLAIN else shown
            if generator.random() < 1 / 30:
                turned = not turned
            label = "Switch" if turned else "No-Switch"
            yield {"timeline_id": name, "timestamp": round(now), "text": generator.choice(shown), "label": label}
