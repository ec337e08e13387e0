"""
Measures the reading of a file's posts into rows, held in memory and streamed: the speed and the peak memory of a
process that does nothing else, beside the memory of a process with the same imports.

The posts of a timeline are consecutive, and the first timeline has a hundred times as many posts as the others.
"""

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from workload import ROOT, table

from modeling_tempoformer.posts.synthetic import WORDS


WAYS = {"imports alone": "nothing", "held in memory": "held", "streamed": "streamed"}


def write_posts(path: Path, num_posts: int, posts_per_timeline: int):
    """Writes a CSV file of synthetic posts of 1 to 40 words."""
    choose = random.Random(0)
    with path.open("w", encoding="utf-8") as file:
        file.write("timeline_id,timestamp,text,label\n")
        for post in range(num_posts):
            # The first timeline is the long one.
            timeline = max(0, post // posts_per_timeline - 99)
            words = " ".join(choose.choices(WORDS, k=choose.randint(1, 40)))
            file.write(
                f"{timeline},{1_700_000_000 + 60 * post},{words},{'Switch' if post % 5 == 0 else 'No-Switch'}\n"
            )


def read(way: str, path: str) -> dict[str, float]:
    """Reads all rows. Returns the seconds, the MiB and the number of rows."""
    from transformers import AutoTokenizer

    from modeling_tempoformer import load_table, to_rows, to_timelines
    from modeling_tempoformer.posts.tables import stream_table

    tokenizer = AutoTokenizer.from_pretrained(ROOT / "tokenization", model_max_length=128)
    start, rows = time.perf_counter(), ()
    if way != "nothing":
        posts = load_table(path) if way == "held" else stream_table([path])
        rows = to_rows(to_timelines(posts, ["No-Switch", "Switch"]), tokenizer, window=20)
    count = sum(1 for _ in rows)
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "rows": count}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--posts", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--posts_per_timeline", type=int, default=20)
    parser.add_argument("--read", nargs=2, metavar=("WAY", "PATH"), help="The task of a process, internal.")
    args = parser.parse_args()
    if args.read:
        print(json.dumps(read(*args.read)))
        return
    rows = []
    for num_posts in args.posts:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "posts.csv"
            write_posts(path, num_posts, args.posts_per_timeline)
            for name, way in WAYS.items():
                command = [sys.executable, __file__, "--read", way, str(path)]
                output = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout
                figures = json.loads(output.splitlines()[-1])
                speed = f"{num_posts / figures['seconds']:,.0f}" if figures["rows"] else ""
                rows.append([f"{num_posts:,}", name, f"{figures['MiB']:.0f}", speed])
    table(["posts", "", "peak memory, MiB", "posts a second"], rows)


if __name__ == "__main__":
    main()
