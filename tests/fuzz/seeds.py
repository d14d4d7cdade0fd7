"""Write the seed inputs of the fuzzers: python tests/fuzz/seeds.py FOLDER."""

from __future__ import annotations

import hashlib
import struct
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import carya
from carya.data import generate_data

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from python_targets import MAX_EDITS, TARGETS, VALUES, encode_json  # noqa: E402

TEXTS = [
    "a fast web server", "a small mail server for the web", "ein schneller Server für Ärger", "किताब और पढ़ना",
    "機器學習入門", "เรียนภาษาไทย", "A\u0308rger \u212b \u1112\u1161\u11ab \u200d\u00ad", "ΟΔΥΣΣΕΥΣ İ ß ﬁ", "",
]  # fmt: skip
LABELS = [["net", "web"], ["net", "mail"], ["ärger"], ["hindi"], ["chinese"], ["thai"], ["ärger"], ["greek"], []]


def models(folder: Path) -> Iterator[Path]:
    """Train small models that together contain all parts of the format that the C interface reads."""
    data = generate_data(200, 40, labels_per_row=2, features_per_row=8, n_features=60, seed=0)
    dense = np.random.default_rng(0).standard_normal((200, 3)).astype(np.float32)
    variants: list[tuple[dict[str, Any], Any]] = [
        ({"max_depth": 1}, data.X),
        ({"branching": 3, "max_leaf_size": 4, "weight_dtype": "float32"}, data.X),
        ({"branching": 20, "max_leaf_size": 2, "weight_dtype": "float16"}, data.X),
        ({"branching": 4, "max_leaf_size": 5, "clusters_per_label": 2}, data.X),
        ({"branching": 4, "max_leaf_size": 5}, (data.X, dense)),
    ]
    for number, (parameters, X) in enumerate(variants):
        path = folder / f"features-{number}"
        carya.XRLinear(n_jobs=1, **parameters).fit(X, data.Y).save(path)
        yield path
    vectorizers: list[dict[str, Any]] = [
        {}, {"analyzer": ["word", "char_wb"], "ngram_range": [(1, 2), (2, 4)]}, {"n_buckets": 64},
        {"tokenizer": "sklearn", "stop_words": ["a", "the"], "strip_accents": "unicode"},
    ]  # fmt: skip
    for number, parameters in enumerate(vectorizers):
        path = folder / f"texts-{number}"
        vectorizer = carya.Tfidf(min_df=1, n_jobs=1, **parameters)
        model = carya.XRLinear(branching=2, max_leaf_size=2, n_jobs=1)
        carya.TextRanker(vectorizer, model).fit(TEXTS, LABELS).save(path)
        yield path


def model_input(path: Path) -> bytes:
    manifest = (path / "manifest.json").read_bytes()
    return struct.pack("<I", len(manifest)) + manifest + (path / "arrays.bin").read_bytes()


def block_inputs() -> Iterator[bytes]:
    """Yield random blocks; fuzz_blocks.cpp reads sizes from the end of an input and blocks from its beginning."""
    rng = np.random.default_rng(0)
    for size in (50, 200, 800, 3000):
        for high in (4, 40, 256):
            yield rng.integers(0, high, size, np.uint8).tobytes() + rng.integers(0, 256, 200, np.uint8).tobytes()


def text_inputs() -> Iterator[bytes]:
    """Yield texts with options; fuzz_text.cpp reads the options from the end of an input."""
    rng = np.random.default_rng(0)
    content = "\n".join(TEXTS).encode()
    for _ in range(40):
        yield content + rng.integers(0, 256, 20, np.uint8).tobytes()


def inputs(name: str, folder: Path) -> Iterator[bytes]:
    """Yield the seeds of a target."""
    paths = list(models(folder)) if name in ("native-model", "native-json") else []
    if name == "native-model":
        yield from map(model_input, paths)
    elif name == "native-json":
        yield from ((path / "manifest.json").read_bytes() for path in paths)
        yield from (encode_json(value) for value in [*VALUES, {"a": VALUES[: MAX_EDITS * 4]}])
    elif name == "native-blocks":
        yield from block_inputs()
    elif name == "native-text":
        yield from text_inputs()
    else:
        yield from TARGETS[name].seeds()


def write(name: str, folder: Path) -> None:
    """Write the seeds of a target to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        for content in inputs(name, Path(temporary)):
            (folder / hashlib.sha1(content).hexdigest()).write_bytes(content)


if __name__ == "__main__":
    for target in ("native-json", "native-model", "native-blocks", "native-text", *TARGETS):
        write(target, Path(sys.argv[1]) / target)
