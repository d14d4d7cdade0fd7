"""Tests for benchmarks/paper.py: reading a small data set in every published format; creating tables and figures."""

from __future__ import annotations

import gzip
import importlib
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import carya
from carya.data import Matrices, write_data
from carya.data.synthetic.published_sizes import PUBLISHED_SIZES

pytest.importorskip("matplotlib")
BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
SCALE = 0.06  # 927 rows and 237 labels, enough for a tree with clusters
SHORT = {"train": "trn", "test": "tst"}


@pytest.fixture(scope="module")
def paper() -> Any:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        yield importlib.import_module("paper")
    finally:
        sys.path.remove(str(BENCHMARKS))


@pytest.fixture
def in_process(paper: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Measure cells in this process, which is faster; the returned list receives the name of each measured cell."""
    run_paper = importlib.import_module("run_paper")
    measured: list[str] = []

    def run(python: str, script: str, *arguments: object, limit: float | None = None) -> dict[str, Any]:
        results: list[dict[str, Any]] = []
        monkeypatch.setattr(run_paper.measure, "emit", results.append)
        monkeypatch.setattr(sys, "argv", [script, *map(str, arguments)])
        run_paper.main()
        measured.append(str(arguments[2]))
        return dict(json.loads(json.dumps(results[0])))

    monkeypatch.setattr(paper, "run_script", run)
    return measured


@pytest.fixture(scope="module")
def toy() -> dict[str, Any]:
    """Return matrices, texts and label names of a small data set."""
    model = carya.data.synthesize("eurlex-4k", SCALE)
    data: dict[str, Any] = {"names": [model.label_name(label) for label in range(model.n_labels)]}
    for part in SHORT:
        data[f"X.{part}"], data[f"Y.{part}"] = model.matrices(part)
        counts = [block for block, _ in model.count_blocks(part)]
        data[f"texts.{part}"] = [
            " ".join(model.word(word) for word in np.repeat(row.indices, row.data.astype(int)).tolist())
            for block in counts
            for row in (block[[number]] for number in range(block.shape[0]))
        ]
    return data


def label_names_of(data: dict[str, Any], part: str) -> list[list[str]]:
    Y = data[f"Y.{part}"]
    return [[data["names"][label] for label in Y[[row]].indices] for row in range(Y.shape[0])]


def write_pecos_archive(folder: Path, data: dict[str, Any]) -> None:
    (folder / "tfidf-attnxml").mkdir(parents=True)
    for part, short in SHORT.items():
        sp.save_npz(folder / "tfidf-attnxml" / f"X.{short}.npz", sp.csr_matrix(data[f"X.{part}"]))
        sp.save_npz(folder / f"Y.{short}.npz", sp.csr_matrix(data[f"Y.{part}"]))
        (folder / f"X.{short}.txt").write_text("\n".join(data[f"texts.{part}"]) + "\n")
    (folder / "output-items.txt").write_text("\n".join(data["names"]) + "\n")


def write_attention_xml(folder: Path, data: dict[str, Any]) -> None:
    folder.mkdir(parents=True)
    for part in SHORT:
        matrices = Matrices(data[f"X.{part}"], data[f"Y.{part}"])
        write_data(folder / f"{part}_v1.txt", matrices, format="xmc")
        (folder / f"{part}_texts.txt").write_text("\n".join(data[f"texts.{part}"]) + "\n")
        lines = [" ".join(labels) for labels in label_names_of(data, part)]
        (folder / f"{part}_labels.txt").write_text("\n".join(lines) + "\n")


def write_repository_file(folder: Path, data: dict[str, Any]) -> None:
    folder.mkdir(parents=True)
    for part in SHORT:
        X = data[f"X.{part}"].copy()
        X.data *= 7  # the repository's feature vectors are not normalized
        write_data(folder / f"eurlex_{part}.txt", Matrices(X, data[f"Y.{part}"]), format="xmc")


def write_repository_pairs(folder: Path, data: dict[str, Any]) -> None:
    folder.mkdir(parents=True)
    for part in SHORT:
        write_data(folder, Matrices(data[f"X.{part}"], data[f"Y.{part}"]), part=part, format="xmc-folder")


def write_repository_json(folder: Path, data: dict[str, Any]) -> None:
    folder.mkdir(parents=True)
    for part, short in SHORT.items():
        with gzip.open(folder / f"{short}.json.gz", "wt") as file:
            for row, text in enumerate(data[f"texts.{part}"]):
                labels = data[f"Y.{part}"][[row]].indices.tolist()
                file.write(json.dumps({"uid": str(row), "title": text, "target_ind": labels}) + "\n")
    (folder / "Y.txt").write_text("\n".join(data["names"]) + "\n")


#: For each published format: the folder, the function that writes it, whether it contains features, and whether it
#: contains texts.
FORMS: dict[str, tuple[str, Callable[[Path, dict[str, Any]], None], bool, bool]] = {
    "PECOS archive": ("xmc-base/eurlex-4k", write_pecos_archive, True, True),
    "AttentionXML": ("EUR-Lex", write_attention_xml, True, True),
    "repository, one file per split": ("Eurlex", write_repository_file, True, False),
    "repository, features and labels": ("Eurlex-4K", write_repository_pairs, True, False),
    "repository, raw texts": ("eurlex4k", write_repository_json, False, True),
}
CELLS = ["statistics", "label distribution", "T=1, B=32, TFN", "layouts"]


def run(paper: Any, monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    monkeypatch.setattr(sys, "argv", ["paper.py", *map(str, arguments)])
    paper.main()


def read_cell(out: Path, name: str) -> dict[str, Any]:
    cell: dict[str, Any] = json.loads((out / "eurlex-4k" / f"{name}.json").read_text())
    return cell


@pytest.mark.parametrize("form", FORMS)
def test_every_published_form_is_read(
    form: str,
    paper: Any,
    toy: dict[str, Any],
    in_process: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder, write, has_features, has_texts = FORMS[form]
    write(tmp_path / "data" / folder, toy)
    out = tmp_path / "out"
    run(paper, monkeypatch, tmp_path / "data", "--out", out, "--threads", 1, "--queries", 20, "--cells", *CELLS)
    assert in_process == CELLS
    sizes = read_cell(out, "statistics")
    assert (sizes["n_train"], sizes["n_test"]) == (toy["Y.train"].shape[0], toy["Y.test"].shape[0])
    assert sizes["rows_per_label"] == pytest.approx(toy["Y.train"].nnz / sizes["n_labels"])
    assert ("train_words" in sizes) == has_texts
    if has_texts:
        assert sizes["train_words"] == sum(len(text.split()) for text in toy["texts.train"])
    linear = read_cell(out, "t1-b32-tfn")
    if has_features:  # all formats contain the same features, so all models are the same
        assert (sizes["n_features"], sizes["n_labels"]) == (toy["X.train"].shape[1], toy["Y.train"].shape[1])
        expected = carya.XRLinear(
            branching=32, max_leaf_size=100, threshold=0.1, transform="l3-hinge", negatives="teacher", n_jobs=1
        ).fit(toy["X.train"], toy["Y.train"])
        S = expected.predict(toy["X.test"], top_k=10)
        assert linear["P@1"] == pytest.approx(100 * carya.metrics.precision(toy["Y.test"], S, k=1), abs=0.6)
    assert 30 < linear["P@1"] < 100
    layouts = read_cell(out, "layouts")["layouts"]
    assert set(layouts) == {"packed", "by-label", "by-feature", "hash", "search"}
    assert all(values["memory_mb"] >= 0 and values["one_row_ms"] > 0 for values in layouts.values())


def test_one_run_fills_all_tables_and_can_be_resumed(
    paper: Any, toy: dict[str, Any], in_process: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_pecos_archive(tmp_path / "data" / "eurlex-4k", toy)
    arguments = [tmp_path / "data", "--out", tmp_path / "out", "--threads", 1, "--queries", 20]
    run(paper, monkeypatch, *arguments)
    all_cells = list(in_process)
    assert len(all_cells) == len(set(all_cells)) == 2 + 12 + 1 + 2  # without transformers
    page = (tmp_path / "out" / "README.md").read_text()
    for title in ("Data", "Label distribution", "Main results", "Training time and precision", "Real-time inference"):
        assert f"\n## {title}\n" in page
    assert "generated data" not in page
    ablation = page.partition("## Ablation")[2].partition("\n## ")[0]
    rows = [line.split(" | ") for line in ablation.splitlines() if line.startswith(("| 1 ", "| 3 "))]
    assert len(rows) == 13
    assert all(re.fullmatch(r"[\d.]+ / [\d.]+ / [\d.]+", row[6]) for row in rows)
    assert "| 3 | 32 | TFN | 3 | 2 | 82.07 / 69.61 / 58.23 |" in ablation  # the results from the paper
    for name in ("label-distribution", "time-against-precision", "latency"):
        assert "<svg" in (tmp_path / "out" / "figures" / f"{name}.svg").read_text()
    merged = json.loads((tmp_path / "out" / "results.json").read_text())["data"]["eurlex-4k"]
    assert merged["scale"] is None
    assert sorted(merged["cells"]) == sorted(all_cells)
    record = read_cell(tmp_path / "out", "statistics")["provenance"]
    assert record["versions"]["carya"] == carya.__version__
    assert record["machine"]["cores"] >= 1
    assert record["commit"]

    in_process.clear()
    run(paper, monkeypatch, *arguments)
    assert in_process == []  # all cells have already been measured
    (tmp_path / "out" / "eurlex-4k" / "layouts.json").unlink()
    run(paper, monkeypatch, *arguments)
    assert in_process == ["layouts"]
    in_process.clear()
    run(paper, monkeypatch, *arguments, "--seed", 1, "--cells", "statistics")  # a new seed requires new measurements
    assert in_process == ["statistics"]


def test_generated_data_is_labeled_and_missing_data_sets_are_skipped(
    paper: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_process: list[str]
) -> None:
    scale = f"eurlex-4k:{SCALE}"
    arguments = [tmp_path, "--synthesize", scale, "--out", tmp_path / "out", "--queries", 20, "--cells", *CELLS]
    run(paper, monkeypatch, *arguments, "--threads", 1)
    page = (tmp_path / "out" / "README.md").read_text()
    assert "**eurlex-4k: data generated by `carya data synth`, not the published data.**" in page
    assert f"`carya data synth --like eurlex-4k --scale {SCALE} --texts`" in page
    assert "wiki10-31k" not in page


def test_the_command_measures_in_separate_processes(toy: dict[str, Any], tmp_path: Path) -> None:
    write_repository_pairs(tmp_path / "data" / "Eurlex-4K", toy)
    command = [sys.executable, str(BENCHMARKS / "paper.py"), str(tmp_path / "data"), "--out", str(tmp_path / "out")]
    options = ["--threads", "1", "--cells", "T=1, B=32, TFN", "statistics"]
    subprocess.run([*command, *options], check=True, capture_output=True)
    assert read_cell(tmp_path / "out", "t1-b32-tfn")["train_peak_mb"] > 10


def test_folders_without_data_sets_are_rejected(paper: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit, match="contains none of the data sets eurlex-4k"):
        run(paper, monkeypatch, tmp_path)
    with pytest.raises(SystemExit, match="is not a folder"):
        run(paper, monkeypatch, tmp_path / "missing")


def test_a_data_set_that_exists_twice_is_rejected(
    paper: Any, toy: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("a/Eurlex-4K", "b/eurlex"):
        write_repository_pairs(tmp_path / folder, toy)
    with pytest.raises(SystemExit, match="eurlex-4k was found twice"):
        run(paper, monkeypatch, tmp_path)


def test_a_failed_cell_does_not_stop_the_others(
    paper: Any, toy: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_process: list[str]
) -> None:
    write_repository_pairs(tmp_path / "data" / "eurlex", toy)
    in_process_run = paper.run_script

    def fail(python: str, script: str, *arguments: object, limit: float | None = None) -> dict[str, Any]:
        if arguments[2] == "statistics":
            raise SystemExit("out of memory")
        return dict(in_process_run(python, script, *arguments, limit=limit))

    monkeypatch.setattr(paper, "run_script", fail)
    cells = ["--cells", "statistics", "label distribution"]
    with pytest.raises(SystemExit, match="Failed: eurlex-4k, statistics"):
        run(paper, monkeypatch, tmp_path / "data", "--out", tmp_path / "out", "--threads", 1, *cells)
    assert in_process == ["label distribution"]


def test_the_published_sizes_agree_with_the_paper() -> None:
    reported = json.loads((BENCHMARKS / "published" / "paper.json").read_text())["data"]
    assert list(reported) == list(PUBLISHED_SIZES)
    for name, size in PUBLISHED_SIZES.items():
        for key in ("n_train", "n_test", "n_features", "n_labels", "labels_per_row"):
            assert getattr(size, key) == reported[name][key], (name, key)


@pytest.mark.transformer
def test_transformers_are_measured_with_a_random_encoder(
    paper: Any, toy: dict[str, Any], in_process: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    write_attention_xml(tmp_path / "data" / "eurlex", toy)
    cells = ["XR-Transformer", "X-Transformer"]
    options = ["--encoder", "random", "--set", "epochs=1", "--set", "max_length=16", "--queries", 5, "--threads", 1]
    run(paper, monkeypatch, tmp_path / "data", "--out", tmp_path / "out", *options, "--cells", *cells)
    assert in_process == cells
    for name in ("xr-transformer", "x-transformer"):
        cell = read_cell(tmp_path / "out", name)
        assert cell["encoders"] == ["random-encoder"]
        assert cell["one_row_ms"] > 0
        assert 0 <= cell["P@1"] <= 100
