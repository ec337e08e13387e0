"""Counts what a live service answers, for Prometheus."""

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import redis
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from modeling_tempoformer import class_names

from .live_classifier import CONTEXTS, LiveClassifier
from .policy import EVENTS, HELD_BACK, TAKEN_BACK


# Upper ends of the bins of a probability.
BINS = [number / 20 for number in range(1, 21)]


class ServerMetrics:
    """
    Counts what a server process takes and answers, whatever its model.

    | metric | what |
    | --- | --- |
    | `posts_total` | posts of live timelines by outcome: scored, late, refused, busy, failed, gone |
    | `stateless_posts_total` | posts of requests that score several, by outcome: scored, refused, busy, failed |
    | `score_seconds` | histogram of the seconds from a live post's arrival to its answer |
    | `batch_posts` | histogram of the posts of a batch |
    | `waiting_posts` | posts that wait for a batch |

    Attributes: `registry`, the `CollectorRegistry` with these metrics and the process's own.
    """

    def __init__(self):
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.posts = self.make(Counter, "posts", "Posts by outcome", ["outcome"])
        self.stateless = self.make(Counter, "stateless_posts", "Posts of requests for several", ["outcome"])
        self.seconds = self.make(Histogram, "score_seconds", "Seconds from a post's arrival to its answer")
        self.batch = self.make(Histogram, "batch_posts", "Posts of a batch", buckets=[2**n for n in range(8)])
        self.waiting = self.make(Gauge, "waiting_posts", "Posts that wait for a batch")

    def make(self, kind: type, *arguments: Any, **settings: Any) -> Any:
        """Returns a new metric of the registry."""
        return kind(*arguments, registry=self.registry, **settings)


class LiveMetrics(Collector):
    """
    Counts the answers of a model. The label `model` is the `model_id` of its classifier, so that models which run side
    by side are told apart. A post that is sent again is counted once.

    | metric | what |
    | --- | --- |
    | `model_info` | 1, with the model's folder, its calibration and the class that it watches |
    | `predictions_total` | answers by label |
    | `watched_probability` | histogram of the watched class's probability |
    | `alarms_total` | answers that are alarms, and alarms that were due without a post |
    | `alarms_not_raised_total` | answers by the event of a policy of alarms: held back, taken back |
    | `post_contexts_total` | answers by the source of the earlier posts |
    | `posts_caught_up_total` | earlier posts that were read because a memory missed them |
    | `memories_dropped_total` | dropped memories and kept texts by reason: damaged, forgotten |
    | `redis_keys_dropped_total` | keys that Redis dropped by reason: evicted (its memory is full), expired (idle) |

    A model without a watched class has neither a histogram nor alarms. The last metric is of the whole Redis server:
    it has no label `model`, each worker gives the same number, and it is left out while Redis cannot be reached.

    Args:
        classifier ([`LiveClassifier`]): The classifier, whose `count` is replaced by the one of this object.
        folder (`str`): Folder or Hub id of its model.

    Attributes: `registry`, the `CollectorRegistry` with these metrics.
    """

    def __init__(self, classifier: LiveClassifier, folder: str):
        config = classifier.model.config
        self.classifier, self.registry = classifier, CollectorRegistry()
        names = class_names(config)
        self.watched = None if config.watched is None else names[config.watched]
        calibration = dict(config.calibration or {})
        if alarm := calibration.get("alarm"):
            # The card has what was measured.
            calibration["alarm"] = {name: value for name, value in alarm.items() if name != "measured"}
        if classifier.alarm is not None:
            calibration["alarm"]["policy"] = dict(classifier.alarm.policy)
        about = {"folder": folder, "watched": self.watched or "", "calibration": json.dumps(calibration)}
        self.of_model(Info, "model", "The model, and what it decides by").info(about)
        # Each series begins at 0, because one that appears later has no rate for its first count.
        predictions = self.of_model(Counter, "predictions", "Answers by label", "label")
        self.predictions = {name: predictions.labels(classifier.model_id, name) for name in names}
        contexts = self.of_model(Counter, "post_contexts", "Answers by the source of the earlier posts", "context")
        self.contexts = {name: contexts.labels(classifier.model_id, name) for name in CONTEXTS}
        if self.watched is not None:
            self.probability = self.of_model(
                Histogram, "watched_probability", "Probability of the watched class", buckets=BINS
            )
            self.alarms = self.of_model(Counter, "alarms", "Answers that are alarms")
        self.events = {}
        if classifier.alarm is not None:
            events = self.of_model(Counter, "alarms_not_raised", "Answers by the event of the policy", "event")
            names = (EVENTS[HELD_BACK], EVENTS[TAKEN_BACK])
            self.events = {name: events.labels(classifier.model_id, name) for name in names}
        self.registry.register(self)
        classifier.count = self.count

    def of_model(self, kind: type, name: str, description: str, *labels: str, **settings: Any) -> Any:
        """Registers a metric with the label `model`. Returns it, with this label's value if it has no other labels."""
        metric = kind(name, description, ["model", *labels], registry=self.registry, **settings)
        return metric if labels else metric.labels(self.classifier.model_id)

    def count(self, answer: dict[str, Any]):
        """Counts an answer of [`LiveClassifier.score`]."""
        self.predictions[answer["label"]].inc()
        self.contexts[answer["context"]].inc()
        if self.watched is not None:
            self.probability.observe(answer["watched_probability"])
            self.alarms.inc(answer["alarm"])
        if (counter := self.events.get(answer.get("alarm_event"))) is not None:
            counter.inc()

    def count_due(self, number: int):
        """Counts alarms of [`LiveClassifier.raise_due`]."""
        if self.watched is not None:
            self.alarms.inc(number)

    def collect(self) -> Iterator[CounterMetricFamily]:
        """Yields the counts that the classifier and Redis keep themselves."""
        model_id = self.classifier.model_id
        family = CounterMetricFamily("posts_caught_up", "Earlier posts that a memory missed", labels=["model"])
        family.add_metric([model_id], self.classifier.num_caught_up)
        yield family
        family = CounterMetricFamily("memories_dropped", "Dropped memories by reason", labels=["model", "reason"])
        for reason, number in self.classifier.dropped.items():
            family.add_metric([model_id, reason], number)
        yield family
        with suppress(redis.RedisError):
            dropped = self.classifier.store.count_dropped()
            family = CounterMetricFamily("redis_keys_dropped", "Keys that Redis dropped by reason", labels=["reason"])
            for reason, number in dropped.items():
                family.add_metric([reason], number)
            yield family
