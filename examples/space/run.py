"""
Runs the app for the browser on this machine, or makes a Space of it on the Hub.

    python examples/space/run.py --model_name_or_path outputs/mine
    python examples/space/run.py --model_name_or_path me/my-model --push_space me/my-space
"""

import argparse
from importlib.util import find_spec

from modeling_tempoformer.common.command_line import run_script


def main(arguments: list[str]):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--model_name_or_path", required=True, help="A TempoFormer: a folder, or an id on the Hub.")
    parser.add_argument(
        "--push_space", metavar="ID", help="Create or update this Space instead, for a model on the Hub."
    )
    args = parser.parse_args(arguments)
    if find_spec("gradio") is None:
        raise ValueError('The app needs Gradio: pip install "modeling-tempoformer[space]".')
    from space_app import run_app
    from space_pushing import push_space

    if args.push_space is None:
        run_app(args.model_name_or_path)
    else:
        push_space(args.model_name_or_path, args.push_space)


if __name__ == "__main__":
    run_script(main, "space_app", "space_pushing")
