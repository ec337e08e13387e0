"""Checks that the scripts read the same posts from a file that is not quite what it seems as from a plain one."""

from datetime import UTC, datetime

import pytest
from helpers import with_other_ids, write_posts
from test_nested_posts import predict, show


pytestmark = pytest.mark.slow

ODD = ["--columns", "timestamp=Sent_date+Sent_time", "--columns", "state=none", "--drop_incomplete"]


@pytest.fixture
def files(tmp_path, posts) -> dict[str, list[str]]:
    """Returns the options of a plain file and of an odd one of the same posts, whose people were not trained on."""
    plain = with_other_ids(posts, "new")
    moments = [datetime.fromtimestamp(float(post["timestamp"]), UTC) for post in plain]
    header = "Timeline_ID| TEXT|Label|State|Sent_date|Sent_time\n"
    lines = [
        f"{post['timeline_id']}|{post['text']}|{post['label']}|CA|{moment:%Y-%m-%d}|{moment.time()}\n"
        for post, moment in zip(plain, moments, strict=True)
    ]
    lines = [*lines[:7], header, "an event||||2024-05-01|\n", *lines[7:]]
    (tmp_path / "odd.csv").write_text("sep=|\n" + header + "".join(lines))
    plain_file = write_posts(tmp_path / "plain.csv", plain)
    return {"plain": ["--test_file", plain_file], "odd": ["--test_file", str(tmp_path / "odd.csv"), *ODD]}


def test_odd_posts_are_predicted_as_plain_ones(tmp_path, trained, files):
    tables = [predict(trained, options, tmp_path / name) for name, options in files.items()]
    plain, odd = ([{key: cell for key, cell in row.items() if key != "post_id"} for row in rows] for rows in tables)
    assert len(plain) == 60 and plain == odd


def test_odd_posts_are_shown_as_plain_ones(tmp_path, trained, files):
    plain, odd = (show(trained, options, tmp_path / f"{name}.html") for name, options in files.items())
    assert plain == odd
