"""X-Transformer and XR-Transformer on a folder of texts: train, evaluate on its test part, and print JSON.

    python benchmarks/run_transformers.py DATA --encoder FOLDER [--model x-transformer] [--set max_length=256 …]
    python benchmarks/run_transformers.py DATA --encoder FOLDER --speed

DATA is a folder of texts (train.texts.txt.gz, train.labels.npz, …) and, unless --without-label-texts, of the names of
labels (label_names.txt.gz or label_names.tsv.gz, the name last in a line). What is chosen is chosen on its dev part or,
if it has none, on a tenth of train: whole groups of texts that are nearly the same, as texts of one origin tell too
much.
--speed measures how many tokens a second training reads, and what share of the device's bfloat16 rate that is.
"""

from __future__ import annotations

import argparse
import bz2
import gzip
import json
import lzma
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import carya

import measure


def texts_of(data: Path, part: str) -> list[str] | None:
    return lines_of(data, f"{part}.texts.txt")


def label_texts_of(data: Path) -> dict[str, str] | None:
    lines = lines_of(data, "label_names.txt") or lines_of(data, "label_names.tsv")
    return None if lines is None else {str(at): line.split("\t")[-1] for at, line in enumerate(lines)}


def lines_of(data: Path, name: str) -> list[str] | None:
    for ending, how in ((".gz", gzip.open), (".bz2", bz2.open), (".xz", lzma.open)):
        file = data / f"{name}{ending}"
        if file.exists():
            with how(file, "rt", encoding="utf-8", newline="\n") as lines:
                return [line.rstrip("\n") for line in lines]
    return None


def labels_of(data: Path, part: str, columns: int | None = None) -> sp.csr_array:
    Y = sp.csr_array(sp.load_npz(data / f"{part}.labels.npz")).astype(np.float32)
    if columns is not None:
        Y.resize((Y.shape[0], columns))
    return Y


def alone(texts: list[str], share: float = 0.1, close: float = 0.6, seed: int = 0) -> np.ndarray:
    """Numbers of about a share of the texts, chosen by groups: no text of them is close to one of the others."""
    X = carya.Tfidf().fit_transform(texts)
    for row in range(X.shape[0]):  # the heaviest dozen of terms tells enough
        values = X.data[X.indptr[row] : X.indptr[row + 1]]
        if values.size > 12:
            values[np.argpartition(values, -12)[:-12]] = 0
    X.eliminate_zeros()
    X = sp.csr_array(sp.diags_array(1 / np.maximum(np.sqrt(X.multiply(X).sum(axis=1)), 1e-9)) @ X)
    turned = sp.csr_array(X.T)
    pairs = []
    for first in range(0, X.shape[0], 2000):
        near = (X[first : first + 2000] @ turned).tocoo()
        pairs.append(np.stack([near.row[near.data > close] + first, near.col[near.data > close]]))
    rows, columns = np.concatenate(pairs, axis=1)
    graph = sp.coo_array((np.ones(rows.size, np.int8), (rows, columns)), shape=(X.shape[0],) * 2)
    _, group = sp.csgraph.connected_components(graph, directed=False)
    size = np.bincount(group)
    order = np.random.default_rng(seed).permutation(size.size)
    chosen = order[: np.searchsorted(np.cumsum(size[order]), share * len(texts))]
    return np.flatnonzero(np.isin(group, chosen[size[chosen] < 0.1 * share * len(texts)]))


def evaluated(model: Any, texts: list[str], Y: sp.csr_array, train: sp.csr_array) -> dict[str, Any]:
    found = {}
    for name in (*model.rankers_, None):
        started = time.perf_counter()
        S = model.predict(texts, top_k=5, using=name)
        took = time.perf_counter() - started
        measures = carya.metrics.report(Y, S, k=(1, 3, 5), propensity=carya.metrics.propensities(train))
        kept = {key: round(100 * value, 2) for key, value in measures.items() if key.startswith(("P@", "PSP@"))}
        found[name or "mixed"] = kept | {"ms_a_text": round(1000 * took / len(texts), 3)}
    return found


def precision(data: Path, arguments: argparse.Namespace, given: dict[str, Any]) -> dict[str, Any]:
    texts, Y = texts_of(data, "train"), labels_of(data, "train")
    dev_texts = texts_of(data, "dev")
    dev = alone(texts) if dev_texts is None else (dev_texts, labels_of(data, "dev", Y.shape[1]))
    kind = carya.XTransformer if arguments.model == "x-transformer" else carya.XRTransformer
    model = kind(encoder=str(arguments.encoder), n_jobs=arguments.threads, verbose=True, **given)
    started = time.perf_counter()
    label_texts = None if arguments.without_label_texts else label_texts_of(data)
    model.fit(texts, Y, dev=dev, label_texts=label_texts)
    took = time.perf_counter() - started
    found = {
        "model": arguments.model,
        "data": data.name,
        "parameters": given,
        "label_texts": label_texts is not None,
        "train_s": round(took, 1),
        "weights": {name: round(value, 2) for name, value in model.weights_.items()},
        "dev": {name: {k: round(100 * v, 2) for k, v in one.items()} for name, one in model.dev_.items()},
        "test": evaluated(model, texts_of(data, "test"), labels_of(data, "test", Y.shape[1]), Y),
        "history": model.history_,
    }
    if arguments.save:
        model.save(arguments.save)
    return found


def speed(data: Path, arguments: argparse.Namespace, given: dict[str, Any]) -> dict[str, Any]:
    """Tokens a second of training on all labels, padding not counted, after a first epoch."""
    import torch

    from carya.transformer.encoder.encoder import Encoder
    from carya.transformer.encoder.tokens import Tokens
    from carya.transformer.training.curriculum import Stage
    from carya.transformer.training.examples import Examples, Settings
    from carya.transformer.training.heads import Heads, Targets
    from carya.transformer.training.trainer import Training

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    encoder = Encoder.load(arguments.encoder).to(device)
    length = int(given.pop("max_length", 128))
    tokens = Tokens.of(texts_of(data, "train") or [], encoder.tokenizer, max_length=length)
    Y = labels_of(data, "train")
    Y.sort_indices()
    targets = Targets(Y.indptr.astype(np.int64), Y.indices.astype(np.int32), np.ones(Y.nnz, np.float32), Y.shape[1])
    heads = Heads([np.zeros(Y.shape[1], np.int32)], encoder.width, dropped=0.1).to(device)
    heads.begin(1, None, np.bincount(Y.indices, minlength=Y.shape[1]) / Y.shape[0], bias=True)
    settings = Settings(**{"compiled": True, "batch_tokens": 65536} | given)
    training = Training(encoder, heads, Examples(tokens, [targets]), [Stage(1, 3, length)], settings)
    history = training.run().history
    rate = history[-1]["tokens"] / history[-1]["seconds"]
    layers = [one for name, one in encoder.model.named_parameters() if one.ndim == 2 and "embeddings" not in name]
    # A multiplication and an addition for each weight of the layers: once forward, twice for the gradients.
    operations = 6 * sum(one.numel() for one in layers)
    found = {"data": data.name, "settings": given, "tokens_a_second": round(rate), "operations_a_token": operations}
    if device.type == "cuda":
        peak = matrix_rate(device)
        found |= {
            "device": torch.cuda.get_device_name(),
            "bf16_tflops": round(peak / 1e12),
            "share_of_bf16": round(rate * operations / peak, 3),
        }
    return found


def matrix_rate(device: Any) -> float:
    """Operations a second of a large product of bfloat16 matrices."""
    import torch

    a, b = (torch.randn(8192, 8192, device=device, dtype=torch.bfloat16) for _ in range(2))
    for _ in range(3):
        a @ b
    torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(10):
        a @ b
    torch.cuda.synchronize()
    return 10 * 2 * 8192**3 / (time.perf_counter() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--encoder", required=True)
    parser.add_argument("--model", choices=("xr-transformer", "x-transformer"), default="xr-transformer")
    parser.add_argument("--set", nargs="*", default=[], help="parameters, as name=JSON")
    parser.add_argument("--threads", type=int, default=-1)
    parser.add_argument("--without-label-texts", action="store_true", help="learn nothing from the names of labels")
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--save", type=Path)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    found = (speed if arguments.speed else precision)(arguments.data, arguments, measure.settings(arguments.set))
    print(json.dumps(found))
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
