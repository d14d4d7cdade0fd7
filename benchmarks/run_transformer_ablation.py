"""Compare settings of XR-Transformer on held-out training texts, and print a table as JSON.

    python benchmarks/run_transformer_ablation.py DATA [DATA …] --encoder FOLDER --variants variants.json
    python benchmarks/run_transformer_ablation.py DATA --encoder FOLDER --variants variants.json --final

variants.json maps the name of each variant to parameters of XRTransformer; the parameters in "all" apply to all
variants, and those in a nested object apply only to the data set with the name of the object. A variant with "preset",
such as {"preset": "accurate"}, is a TextRanker with this preset. Runs of 20 consecutive texts are held out together,
because texts from the same source are often adjacent. Models are trained in parallel processes, which share the GPU;
models that have not been started after --time-limit seconds are skipped.

With --final, the models are trained on all training texts and evaluated on the test texts (test.texts.txt.gz) or, in
the data set of the LLMs4Subjects shared task, on dev.en and dev.de. Labels that do not occur in the training texts
count as not found.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import carya
from run_transformers import read_label_texts, read_labels, read_lines, read_texts

import measure

_RUN = 20  # consecutive texts that are held out together
_DEPTH = 20
_PARTS = ("test", "dev.en", "dev.de", "dev")


def split(n_texts: int, held_out: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the training texts and the held-out texts."""
    runs = np.arange(n_texts) // _RUN
    order = np.random.default_rng(seed).permutation(runs.max() + 1)
    is_held_out = np.isin(runs, order[: -(-held_out // _RUN)])
    return np.flatnonzero(~is_held_out), np.flatnonzero(is_held_out)


def evaluate(S: sp.csr_array, Y: sp.csr_array, training: sp.csr_array, missing: np.ndarray | None) -> dict[str, float]:
    """Return P@k, PSP@k, nDCG@20 and F1@5 in percent, and R@10 of the labels without training texts."""
    propensity = carya.metrics.propensities(training)
    report = carya.metrics.report(Y, S, k=(1, 3, 5), propensity=propensity)
    scores = {name: value for name, value in report.items() if name.startswith(("P@", "PSP@"))}
    is_seen = np.bincount(training.indices, minlength=training.shape[1]) > 0
    discounts = 1 / np.log2(np.arange(2, _DEPTH + 2))
    gains, f1, found, total = [], [], 0, 0
    for row in range(Y.shape[0]):
        truth = Y.indices[Y.indptr[row] : Y.indptr[row + 1]]
        count = truth.size + (0 if missing is None else int(missing[row]))
        if not count:
            continue
        ranked = S.indices[S.indptr[row] : S.indptr[row + 1]][:_DEPTH]
        hits = np.isin(ranked, truth)
        gains.append((hits * discounts[: hits.size]).sum() / discounts[: min(_DEPTH, count)].sum())
        n_hits = hits[:5].sum()
        f1.append(2 * n_hits / (5 + count))
        unseen = truth[~is_seen[truth]]
        found += np.isin(unseen, ranked[:10]).sum()
        total += unseen.size
    scores |= {"nDCG@20": float(np.mean(gains)), "F1@5": float(np.mean(f1))}
    if total:
        scores["R@10 unseen"] = found / total
    return {name: round(100 * float(value), 2) for name, value in scores.items()}


def run(task: dict[str, Any]) -> dict[str, Any]:
    """Train and evaluate one model."""
    import torch

    data, parameters = Path(task["data"]), dict(task["parameters"])
    torch.set_num_threads(task["threads"])
    texts, Y = read_texts(data, "train"), read_labels(data, "train")
    label_texts = read_label_texts(data)
    Y.resize((Y.shape[0], max(Y.shape[1], len(label_texts or ()))))
    if task["final"]:
        training = np.arange(len(texts))
        parts = {
            part: (lines, read_labels(data, part, Y.shape[1]), read_missing(data, part))
            for part in _PARTS
            if (lines := read_lines(data, f"{part}.texts.txt")) is not None
        }
    else:
        training, held_out = split(len(texts), task["held_out"], task["seed"])
        training = training[: task["rows"]]
        parts = {"held-out": ([texts[row] for row in held_out], sp.csr_array(Y[held_out]), None)}
    training_texts, training_labels = [texts[row] for row in training], sp.csr_array(Y[training])
    preset = parameters.pop("preset", None)
    started = time.perf_counter()
    if preset is None:
        model: Any = carya.XRTransformer(
            encoder=task["encoder"], n_jobs=task["threads"], device=task["device"], seed=task["seed"], **parameters
        )
        model.fit(training_texts, training_labels, label_texts=label_texts)
    else:
        model = carya.TextRanker(model=carya.preset(preset, n_jobs=task["threads"], seed=task["seed"], **parameters))
        model.fit(training_texts, training_labels, names=label_texts, label_texts=label_texts)
    result = {name: task[name] for name in ("variant", "seed")} | {
        "data": data.name,
        "train_s": round(time.perf_counter() - started, 1),
    }
    scores = {}
    for part, (part_texts, part_labels, missing) in parts.items():
        started = time.perf_counter()
        rankings = {"mixture": model.predict(part_texts, top_k=_DEPTH)}
        seconds = time.perf_counter() - started
        if preset is None:
            rankings |= {name: model.predict(part_texts, top_k=_DEPTH, using=name) for name in model.rankers_}
        scores[part] = {
            name: evaluate(sp.csr_array(S), part_labels, training_labels, missing) for name, S in rankings.items()
        }
        scores[part]["mixture"]["ms_per_text"] = round(1000 * seconds / len(part_texts), 3)
    history = getattr(model, "history_", [])
    if history:
        result["tokens_per_s"] = round(sum(e["tokens"] for e in history) / sum(e["seconds"] for e in history))
    return result | {"scores": scores}


def read_missing(data: Path, part: str) -> np.ndarray | None:
    """Return the number of labels per text that do not occur in the training texts and have no column."""
    path = data / f"{part}.missing.npy"
    return np.load(path) if path.exists() else None


def table(results: list[dict[str, Any]]) -> str:
    """Return one line per model and part, sorted by data set and precision."""
    lines = []
    for result in results:
        for part, rankers in result["scores"].items():
            best = rankers["mixture"]
            head = rankers.get("head", best)
            shown = " ".join(f"{name} {best[name]:.2f}" for name in best)
            key = (result["data"], part, -best["P@1"])
            name = f"{result['data']} {part} {result['variant']} seed {result['seed']}"
            lines.append((key, f"{name}: {shown}; head P@1 {head['P@1']:.2f}; {result['train_s']:.0f} s"))
    return "\n".join(line for _, line in sorted(lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="+", help="folders with texts and labels")
    parser.add_argument("--encoder", required=True, help="encoder folder or model name on the Hugging Face Hub")
    parser.add_argument("--variants", type=Path, required=True, help="JSON file with the parameters of each variant")
    parser.add_argument("--only", nargs="*", help="names of the variants to train, in this order; default: all")
    parser.add_argument("--device", default="auto", help="PyTorch device")
    parser.add_argument("--rows", type=int, default=None, help="maximum number of training texts")
    parser.add_argument("--held-out", type=int, default=4000, help="number of held-out texts")
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds per variant")
    parser.add_argument("--parallel", type=int, default=1, help="number of models trained at the same time")
    parser.add_argument("--threads", type=int, default=2, help="number of threads per model")
    parser.add_argument("--time-limit", type=float, default=np.inf, help="seconds after which no model is started")
    parser.add_argument("--final", action="store_true", help="train on all texts and evaluate on test texts")
    parser.add_argument("--set", nargs="*", default=[], help="parameters of all variants, as name=JSON")
    parser.add_argument("--out", type=Path, help="JSON output file, written after every model")
    arguments = parser.parse_args()
    variants = json.loads(arguments.variants.read_text())
    shared = variants.pop("all", {}) | measure.settings(arguments.set)
    tasks = []
    for seed in range(arguments.seeds):
        for name in arguments.only or variants:
            for data in arguments.data:
                own = variants[name] if "preset" in variants[name] else shared | variants[name]
                parameters = {key: value for key, value in own.items() if not isinstance(value, dict)}
                for source in (shared, variants[name]):
                    parameters |= source.get(data.name, {}) if "preset" not in own else {}
                tasks.append(
                    {
                        "variant": name,
                        "seed": seed,
                        "data": str(data),
                        "parameters": parameters,
                        "encoder": arguments.encoder,
                        **{key: getattr(arguments, key) for key in ("device", "rows", "held_out", "threads", "final")},
                    }
                )
    started, results = time.perf_counter(), []
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(arguments.parallel, mp_context=context) as pool:
        waiting: list[dict[str, Any]] = list(tasks)
        running: dict[Any, dict[str, Any]] = {}
        while waiting or running:
            while waiting and len(running) < arguments.parallel:
                task = waiting.pop(0)
                if time.perf_counter() - started > arguments.time_limit:
                    print(f"skipped: {task['data']} {task['variant']}", flush=True)
                    continue
                running[pool.submit(run, task)] = task
            for future in as_completed(list(running)):
                task = running.pop(future)
                if future.exception() is not None:
                    print(f"failed: {task['data']} {task['variant']}: {future.exception()!r}", flush=True)
                else:
                    results.append(future.result())
                    print(json.dumps(results[-1]), flush=True)
                    if arguments.out:
                        arguments.out.parent.mkdir(parents=True, exist_ok=True)
                        arguments.out.write_text(json.dumps(results, indent=1) + "\n")
                break
    print(table(results))


if __name__ == "__main__":
    main()
