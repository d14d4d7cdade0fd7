"""Measure the time and the memory required to write and read a file of about 100 MB in every data format.

python benchmarks/formats.py [--megabytes 100] [--formats jsonl,csv]   # keeps the results of other formats

Each step runs in a separate process. The times in seconds and the peak resident memory in MB are written to
benchmarks/results/formats.json. The first row, `nothing`, applies to a process that only imports the packages.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import platform
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results" / "formats.json"

#: The path of the data in each format, and the path of the labels if they are in a separate file.
TARGETS: dict[str, tuple[str, str]] = {
    "jsonl": ("data.jsonl", ""),
    "json": ("data.json", ""),
    "csv": ("data.csv", ""),
    "tsv": ("data.tsv", ""),
    "parquet": ("data.parquet", ""),
    "arrow": ("data.arrow", ""),
    "pair": ("texts.txt", "labels.txt"),
    "lines": ("texts.txt", ""),
    "fasttext": ("data.ft", ""),
    "text2text": ("data.txt", ""),
    "annif": ("data.tsv", ""),
    "xmc-json": ("trn.json", ""),
    "xmc": ("data.xmc", ""),
    "xmc-pair": ("trn_X_Xf.txt", ""),
    "svmlight": ("data.svm", ""),
    "npz": ("X.npz", "Y.npz"),
    "texts": ("set", ""),
    "x-transformer": ("set", ""),
    "xmc-json-folder": ("set", ""),
    "huggingface": ("set", ""),
    "pecos": ("set", ""),
    "xmc-folder": ("set", ""),
    "annif-folder": ("set", ""),
}
#: Factors by which the number of rows is multiplied for compressed formats, whose files would otherwise be smaller.
ROW_FACTORS = {"npz": 2.5, "pecos": 2.5, "xmc-json-folder": 1.7}
WORDS_PER_TEXT, LABELS_PER_ROW, N_LABELS = 60, 5, 10_000
FEATURES_PER_ROW, N_FEATURES = 100, 100_000


def examples(prefix: str = "") -> list[Any]:
    """Return texts of random words with numbered labels, about 430 bytes per text; files repeat this list of texts.

    There are enough distinct texts to prevent Parquet from using dictionary encoding.
    """
    from carya.data import Example

    rng = random.Random(0)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randrange(2, 10))) for _ in range(20_000)]
    return [
        Example(
            " ".join(rng.choices(words, k=WORDS_PER_TEXT)),
            tuple(f"{prefix}{label}" for label in rng.sample(range(N_LABELS), LABELS_PER_ROW)),
        )
        for _ in range(20_000)
    ]


def matrices(n_rows: int) -> Any:
    """Return random features and labels, about 1.1 KB per row as text."""
    import numpy as np
    import scipy.sparse as sp

    from carya.data import Matrices

    rng = np.random.default_rng(0)

    def draw(n_columns: int, per_row: int) -> Any:
        gap = n_columns // per_row
        columns = np.arange(per_row, dtype=np.int32) * gap + rng.integers(0, gap, (n_rows, per_row), dtype=np.int32)
        values = rng.integers(1, 1000, columns.size).astype(np.float32) / 1000
        indptr = np.arange(n_rows + 1, dtype=np.int64) * per_row
        return sp.csr_array((values, columns.reshape(-1), indptr), shape=(n_rows, n_columns))

    X, Y = draw(N_FEATURES, FEATURES_PER_ROW), draw(N_LABELS, LABELS_PER_ROW)
    Y.data[:] = 1
    return Matrices(X, Y)


def write(name: str, folder: Path, megabytes: int) -> float:
    """Write a file in the given format and return the time in seconds.

    Formats that Carya can only read are written with other libraries, and their write times are not reported.
    """
    from carya.data import Corpus, write_data
    from carya.data.formats.registry import FORMATS

    path, labels = TARGETS[name]
    target = folder / path
    options: dict[str, Any] = {"labels": folder / labels} if labels else {}
    n_rows = int(megabytes * (2300 if FORMATS[name].content == "texts" else 900) * ROW_FACTORS.get(name, 1))
    if FORMATS[name].write:
        data: Any = None
        if FORMATS[name].content == "texts":
            repeated = examples("http://a.example/" if name == "annif" else "")
            data = Corpus(lambda: itertools.islice(itertools.cycle(repeated), n_rows), source="benchmark")
        else:
            data = matrices(n_rows)
        started = time.perf_counter()
        write_data(target, data, format=name, **options)
        return time.perf_counter() - started
    rows = itertools.islice(itertools.cycle(examples()), n_rows)
    match name:
        case "lines":
            target.write_text("".join(f"{example.text}\n" for example in rows))
        case "xmc-json" | "xmc-json-folder":
            if name == "xmc-json-folder":
                target.mkdir()
            is_folder = name == "xmc-json-folder"
            with gzip.open(target / "trn.json.gz", "wt", 1) if is_folder else target.open("w") as stream:
                for example in rows:
                    title, _, content = example.text.partition(" ")
                    record = {"title": title, "content": content, "target_ind": list(map(int, example.labels))}
                    stream.write(json.dumps(record) + "\n")
        case "x-transformer":
            target.mkdir()
            with (target / "train_texts.txt").open("w") as texts, (target / "train_labels.txt").open("w") as lists:
                for example in rows:
                    texts.write(example.text + "\n")
                    lists.write(" ".join(example.labels) + "\n")
        case "huggingface":
            write_dataset(target, rows)
        case "annif-folder":
            target.mkdir()
            for number, batch in enumerate(_batched(rows)):
                (target / f"{number}.txt").write_text("\n".join(example.text for example in batch))
                (target / f"{number}.key").write_text("\n".join(batch[0].labels))
    return 0.0


def _batched(rows: Iterator[Any]) -> Iterator[list[Any]]:
    """Yield lists of 25 rows."""
    while batch := list(itertools.islice(rows, 25)):
        yield batch


def write_dataset(target: Path, rows: Iterator[Any]) -> None:
    """Write a folder in the format of the `datasets` library."""
    import pyarrow as pa

    target.mkdir()
    schema = pa.schema([("text", pa.string()), ("labels", pa.list_(pa.string()))])
    with pa.OSFile(str(target / "data-00000-of-00001.arrow"), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
        while batch := list(itertools.islice(rows, 1000)):
            columns = [[example.text for example in batch], [list(example.labels) for example in batch]]
            writer.write_batch(pa.record_batch(columns, schema=schema))
    (target / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}))
    (target / "dataset_info.json").write_text("{}")


def read(name: str, folder: Path) -> int:
    """Read a file in the given format without keeping the texts; return the number of rows."""
    from carya.data import Matrices, open_data

    path, labels = TARGETS[name]
    options: dict[str, Any] = {"labels": folder / labels} if labels else {}
    if name == "lines":
        options["label_column"] = None
    data = open_data(folder / path, format=name, **options)
    return int(data.Y.shape[0]) if isinstance(data, Matrices) else sum(1 for _ in data)


def step(action: str, name: str, folder: Path, megabytes: int) -> None:
    """Run one step and print its result as JSON."""
    started = time.perf_counter()
    rows = 0
    if action == "write":
        seconds = write(name, folder, megabytes)
    elif action == "read":
        rows = read(name, folder)
    else:
        import pyarrow  # noqa: F401
        import scipy.sparse  # noqa: F401

        import carya.data.read_write  # noqa: F401
    if action != "write":
        seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": round(seconds, 2), "peak_mb": round(peak), **({"rows": rows} if rows else {})}))


def measure(action: str, name: str, folder: Path, megabytes: int) -> dict[str, Any]:
    """Run one step in a separate process."""
    command = [sys.executable, __file__, "--step", action, "--formats", name, "--folder", str(folder)]
    run = subprocess.run([*command, "--megabytes", str(megabytes)], capture_output=True, text=True, check=True)
    result: dict[str, Any] = json.loads(run.stdout)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--formats", default=",".join(TARGETS))
    parser.add_argument("--step", choices=["write", "read", "import"])
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    names = options.formats.split(",")
    if options.step:
        step(options.step, names[0], options.folder, options.megabytes)
        return
    results: dict[str, Any] = json.loads(RESULTS.read_text())["formats"] if RESULTS.exists() else {}
    results["nothing"] = measure("import", "jsonl", Path(), 0)
    print(f"{'nothing':16} {results['nothing']}")
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            written = measure("write", name, Path(folder), options.megabytes)
            size = sum(entry.stat().st_size for entry in Path(folder).rglob("*") if entry.is_file())
            was_read = measure("read", name, Path(folder), options.megabytes)
        results[name] = {"mb": round(size / 1e6, 1), "rows": was_read.pop("rows"), "read": was_read}
        from carya.data.formats.registry import FORMATS

        if FORMATS[name].write:
            results[name]["write"] = written
        print(f"{name:16} {results[name]}", flush=True)
    about = {"machine": platform.machine(), "python": platform.python_version(), "megabytes": options.megabytes}
    RESULTS.write_text(json.dumps({"about": about, "formats": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
