"""The corpora of the paper, from their original form to rows of posts."""

from .annomi import read_annomi
from .rumoureval import read_rumoureval
from .talklife import read_talklife
from .topic_shift import read_topic_shift


__all__ = ["read_annomi", "read_rumoureval", "read_talklife", "read_topic_shift"]
