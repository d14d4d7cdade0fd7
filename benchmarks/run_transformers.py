"""Train an X-Transformer or XR-Transformer, evaluate it on the test texts, and print the results as JSON.

    python benchmarks/run_transformers.py DATA --encoder FOLDER [--model x-transformer] [--set max_length=256 …]
    python benchmarks/run_transformers.py DATA --encoder FOLDER --speed

DATA is a text folder (train.texts.txt.gz, train.labels.npz, …) with label names (label_names.txt.gz, or
label_names.tsv.gz with the names in the last column), which are not needed with --without-label-texts. The validation
set is the dev split of DATA or, if DATA has no dev split, a held-out tenth of the training texts. Near-duplicates are
held out together, because the validation scores would otherwise be too optimistic. With --speed, the script measures
the training throughput in tokens per second and as a fraction of the measured bfloat16 throughput of the device.
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

_TERMS_COMPARED = 12  # near-duplicates are detected by comparing this number of highest-weighted terms per text
_BLOCK_ROWS = 2000


def read_texts(data: Path, part: str) -> list[str]:
    lines = read_lines(data, f"{part}.texts.txt")
    if lines is None:
        raise FileNotFoundError(f"{data} contains no file {part}.texts.txt.gz, .bz2 or .xz. Pass a text folder.")
    return lines


def read_label_texts(data: Path) -> dict[str, str] | None:
    lines = read_lines(data, "label_names.txt") or read_lines(data, "label_names.tsv")
    return None if lines is None else {str(label): line.split("\t")[-1] for label, line in enumerate(lines)}


def read_lines(data: Path, name: str) -> list[str] | None:
    for suffix, open_file in ((".gz", gzip.open), (".bz2", bz2.open), (".xz", lzma.open)):
        path = data / f"{name}{suffix}"
        if path.exists():
            with open_file(path, "rt", encoding="utf-8", newline="\n") as file:
                return [line.rstrip("\n") for line in file]
    return None


def read_labels(data: Path, part: str, n_labels: int | None = None) -> sp.csr_array:
    Y = sp.csr_array(measure.read(data, f"{part}.labels.npz"))
    if n_labels is not None:
        Y.resize((Y.shape[0], n_labels))
    return Y


def rows_to_hold_out(texts: list[str], fraction: float = 0.1, max_cosine: float = 0.6, seed: int = 0) -> np.ndarray:
    """Select approximately the given fraction of the texts, keeping near-duplicates together."""
    X = carya.Tfidf().fit_transform(texts)
    for row in range(X.shape[0]):
        values = X.data[X.indptr[row] : X.indptr[row + 1]]
        if values.size > _TERMS_COMPARED:
            values[np.argpartition(values, -_TERMS_COMPARED)[:-_TERMS_COMPARED]] = 0
    X.eliminate_zeros()
    X = sp.csr_array(sp.diags_array(1 / np.maximum(np.sqrt(X.multiply(X).sum(axis=1)), 1e-9)) @ X)
    transposed = sp.csr_array(X.T)
    pairs = []
    for begin in range(0, X.shape[0], _BLOCK_ROWS):
        cosines = (X[begin : begin + _BLOCK_ROWS] @ transposed).tocoo()
        similar = cosines.data > max_cosine
        pairs.append(np.stack([cosines.row[similar] + begin, cosines.col[similar]]))
    rows, columns = np.concatenate(pairs, axis=1)
    graph = sp.coo_array((np.ones(rows.size, np.int8), (rows, columns)), shape=(X.shape[0],) * 2)
    _, group = sp.csgraph.connected_components(graph, directed=False)
    sizes = np.bincount(group)
    order = np.random.default_rng(seed).permutation(sizes.size)
    chosen = order[: np.searchsorted(np.cumsum(sizes[order]), fraction * len(texts))]
    return np.flatnonzero(np.isin(group, chosen[sizes[chosen] < 0.1 * fraction * len(texts)]))


def evaluate(model: Any, texts: list[str], Y: sp.csr_array, training_labels: sp.csr_array) -> dict[str, Any]:
    """Return P@k, PSP@k and the ranking time for each ranker and for their mixture."""
    results = {}
    for name in (*model.rankers_, None):
        started = time.perf_counter()
        S = model.predict(texts, top_k=5, using=name)
        seconds = time.perf_counter() - started
        propensity = carya.metrics.propensities(training_labels)
        report = carya.metrics.report(Y, S, k=(1, 3, 5), propensity=propensity)
        scores = {key: round(100 * value, 2) for key, value in report.items() if key.startswith(("P@", "PSP@"))}
        results[name or "mixture"] = scores | {"ms_per_text": round(1000 * seconds / len(texts), 3)}
    return results


def measure_precision(data: Path, arguments: argparse.Namespace, parameters: dict[str, Any]) -> dict[str, Any]:
    texts, Y = read_texts(data, "train"), read_labels(data, "train")
    dev_texts = read_lines(data, "dev.texts.txt")
    validation_data: np.ndarray | tuple[list[str], sp.csr_array]
    if dev_texts is None:
        validation_data = rows_to_hold_out(texts)
    else:
        validation_data = (dev_texts, read_labels(data, "dev", Y.shape[1]))
    model_class = carya.XTransformer if arguments.model == "x-transformer" else carya.XRTransformer
    model = model_class(encoder=str(arguments.encoder), n_jobs=arguments.threads, verbose=True, **parameters)
    started = time.perf_counter()
    label_texts = None if arguments.without_label_texts else read_label_texts(data)
    model.fit(texts, Y, validation_data=validation_data, label_texts=label_texts)
    seconds = time.perf_counter() - started
    results = {
        "model": arguments.model,
        "data": data.name,
        "parameters": parameters,
        "label_texts": label_texts is not None,
        "train_s": round(seconds, 1),
        "weights": {name: round(weight, 2) for name, weight in model.weights_.items()},
        "validation": {
            name: {metric: round(100 * value, 2) for metric, value in scores.items()}
            for name, scores in model.validation_scores_.items()
        },
        "test": evaluate(model, read_texts(data, "test"), read_labels(data, "test", Y.shape[1]), Y),
        "history": model.history_,
    }
    if arguments.save:
        model.save(arguments.save)
    return results


def measure_speed(data: Path, arguments: argparse.Namespace, parameters: dict[str, Any]) -> dict[str, Any]:
    """Train on all labels for three epochs and return the throughput of the last epoch, excluding padding tokens."""
    import torch

    from carya.transformer.encoder.encoder import Encoder
    from carya.transformer.encoder.tokens import Tokens
    from carya.transformer.settings import TransformerSettings
    from carya.transformer.training.curriculum import Stage
    from carya.transformer.training.examples import Examples, Targets
    from carya.transformer.training.heads import Heads
    from carya.transformer.training.trainer import Trainer

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    encoder = Encoder.load(arguments.encoder).to(device)
    settings = TransformerSettings(**{"compile": True, "batch_tokens": 65536, "learning_rate": 1e-4} | parameters)
    tokens = Tokens.of(read_texts(data, "train"), encoder.tokenizer, max_length=settings.max_length)
    Y = read_labels(data, "train")
    Y.sort_indices()
    targets = Targets(Y.indptr.astype(np.int64), Y.indices.astype(np.int32), np.ones(Y.nnz, np.float32), Y.shape[1])
    heads = Heads([np.zeros(Y.shape[1], np.int32)], encoder.width, dropout=settings.head_dropout).to(device)
    heads.initialize(1, None, np.bincount(Y.indices, minlength=Y.shape[1]) / Y.shape[0], log_odds=True)
    stages = [Stage(level=1, epochs=3, max_length=settings.max_length)]
    last_epoch = Trainer(encoder, heads, Examples(tokens, [targets]), stages, settings).run().epochs[-1]
    tokens_per_second = last_epoch["tokens"] / last_epoch["seconds"]
    matrices = [
        weights for name, weights in encoder.model.named_parameters() if weights.ndim == 2 and "embeddings" not in name
    ]
    # Per token and weight: one multiplication and one addition in the forward pass, two of each in the backward pass.
    operations = 6 * sum(weights.numel() for weights in matrices)
    results = {
        "data": data.name,
        "settings": parameters,
        "tokens_per_second": round(tokens_per_second),
        "operations_per_token": operations,
    }
    if device.type == "cuda":
        peak = matrix_product_rate(device)
        results |= {
            "device": torch.cuda.get_device_name(),
            "bf16_tflops": round(peak / 1e12),
            "share_of_bf16": round(tokens_per_second * operations / peak, 3),
        }
    return results


def matrix_product_rate(device: Any) -> float:
    """Return the throughput of large bfloat16 matrix products in operations per second."""
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
    parser.add_argument("data", type=Path, help="folder with texts and labels")
    parser.add_argument("--encoder", required=True, help="encoder folder or model name on the Hugging Face Hub")
    parser.add_argument("--model", choices=("xr-transformer", "x-transformer"), default="xr-transformer")
    parser.add_argument("--set", nargs="*", default=[], help="model parameters, as name=JSON")
    parser.add_argument("--threads", type=int, default=-1, help="number of threads; -1 means all cores")
    parser.add_argument("--without-label-texts", action="store_true", help="do not train on the label names")
    parser.add_argument("--speed", action="store_true", help="measure the training throughput instead")
    parser.add_argument("--save", type=Path, help="folder for the trained model")
    parser.add_argument("--out", type=Path, help="JSON output file")
    arguments = parser.parse_args()
    run = measure_speed if arguments.speed else measure_precision
    results = run(arguments.data, arguments, measure.settings(arguments.set))
    print(json.dumps(results))
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
