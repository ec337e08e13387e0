"""Readers of corpora in their original form: they yield posts or dated texts."""

from .annomi import read_annomi
from .mood_diaries import read_mood_diaries
from .rumoureval import read_rumoureval
from .speeches import read_speeches
from .talklife import read_talklife
from .topic_shift import read_topic_shift
from .ubuntu_irc import read_ubuntu_irc


__all__ = [
    "read_annomi",
    "read_mood_diaries",
    "read_rumoureval",
    "read_speeches",
    "read_talklife",
    "read_topic_shift",
    "read_ubuntu_irc",
]
