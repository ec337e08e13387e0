"""Checks that the dashboard and the alert rules of examples/monitoring ask for metrics and labels that there are."""

import json
import re

import pytest
import yaml
from arrivals import TIMELINES, DictStore, send
from helpers import ROOT
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from tempoformer_live.live_classifier import LiveClassifier
from tempoformer_live.metrics import LiveMetrics, ServerMetrics


FOLDER = ROOT / "examples" / "monitoring"
# Words of PromQL that stand where a metric could.
WORDS = {"by", "offset", "ignoring", "group_left", "sum", "max", "rate", "increase", "scalar", "abs", "log2", "d", "m"}
WORDS |= {"histogram_quantile"}


class StoreThatDropped(DictStore):
    """Stands for a store whose Redis server has dropped keys."""

    def count_dropped(self) -> dict[str, int]:
        return {"evicted": 5, "expired": 7}


@pytest.fixture
def exposed(pipe) -> dict[str, set[str]]:
    """Returns the labels of each metric that the server exposes after a post, with those that Prometheus adds."""
    pipe.model.config.watched = 1
    classifier = LiveClassifier(pipe, StoreThatDropped())
    watching, server = LiveMetrics(classifier, "outputs/mine"), ServerMetrics()
    send(classifier, TIMELINES, [("ann", 0)])
    server.posts.labels("scored").inc()
    server.stateless.labels("scored").inc()
    labels: dict[str, set[str]] = {}
    for registry in (server.registry, watching.registry):
        for family in text_string_to_metric_families(generate_latest(registry).decode()):
            for sample in family.samples:
                labels.setdefault(sample.name, {"instance", "job"}).update(sample.labels)
    assert watching.registry.get_sample_value("redis_keys_dropped_total", {"reason": "evicted"}) == 5
    return labels


def check(query: str, exposed: dict[str, set[str]]):
    """Checks the metrics and labels of a PromQL query."""
    grouped = [name for names in re.findall(r"(?:by|ignoring) \(([\w, ]+)\)", query) for name in names.split(", ")]
    bare = re.sub(r"\{.*?\}|\[.*?\]|(?:by|ignoring) \(.*?\)", "", query)
    names = set(re.findall(r"[a-zA-Z_]\w*", bare)) - WORDS
    assert names and names <= set(exposed), names - set(exposed)
    known = set.union(*(exposed[name] for name in names))
    matched = [(name, re.findall(r"(\w+)=", given)) for name, given in re.findall(r"(\w+)\{(.*?)\}", query)]
    assert all(set(labels) <= exposed[name] for name, labels in matched), query
    assert set(grouped) <= known, set(grouped) - known


def test_the_dashboard_shows_what_the_server_exposes(exposed):
    board = json.loads((FOLDER / "dashboard.json").read_text(encoding="utf-8"))
    places, queries = set(), []
    for panel in board["panels"]:
        place = panel["gridPos"]
        places |= {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert panel["title"] and place["x"] + place["w"] <= 24
        for target in panel["targets"]:
            queries.append(target["expr"])
            check(target["expr"], exposed)
            shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            assert all(label in target["expr"] for label in shown)
    # No panel covers another.
    assert len(places) == sum(panel["gridPos"]["w"] * panel["gridPos"]["h"] for panel in board["panels"])
    # Every number of the service that a model decides has a panel.
    watched = [name for name in exposed if not name.endswith(("_created", "_bucket", "_sum", "_count"))]
    left_out = {name for name in watched if not any(name in query for query in queries)}
    assert not {name for name in left_out if not name.startswith(("process_", "batch_"))}


def test_the_alert_rules_ask_for_what_the_server_exposes(exposed):
    (group,) = yaml.safe_load((FOLDER / "alerts.yml").read_text(encoding="utf-8"))["groups"]
    assert len(group["rules"]) == 3
    for rule in group["rules"]:
        check(" ".join(rule["expr"].split()), exposed)
        assert rule["alert"] and rule["for"] and rule["labels"]["severity"] and rule["annotations"]["summary"]
        shown = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
        assert all(f"by ({label})" in rule["expr"] for label in shown)


@pytest.mark.parametrize(
    "query", ["sum by (room) (rate(alarms_total[5m]))", 'posts_total{model="a"}', "rate(alarm[1h])"]
)
def test_a_wrong_name_is_found(query, exposed):
    with pytest.raises(AssertionError):
        check(query, exposed)
