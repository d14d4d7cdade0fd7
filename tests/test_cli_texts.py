"""Tests for the commands that process texts: train, predict, evaluate, explain and inspect."""

from __future__ import annotations

import gzip
import itertools
import json
import math
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from click.testing import CliRunner

import carya
from carya.cli.app import app
from carya.errors import MissingExtraError

from command_line import CARYA, run, start
from topics import corpus

TEXT = "the telescope shows a planet and its moon"


@pytest.fixture(scope="module")
def jsonl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for part, seed in (("train", 0), ("test", 1)):
        rows = zip(*corpus(300, seed), strict=True)
        lines = (json.dumps({"text": text, "labels": labels}) for text, labels in rows)
        (folder / f"{part}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def model(jsonl: Path) -> Path:
    result = run("train", str(jsonl / "train.jsonl"), "-o", str(jsonl / "model"), "--max-leaf-size", "6")
    assert result.returncode == 0, result.stderr
    assert "300 rows" in result.stdout
    assert "━" not in result.stderr, "progress bars must be shown only in terminals"
    return jsonl / "model"


def test_an_existing_model_is_replaced_only_with_force(model: Path, jsonl: Path, tmp_path: Path) -> None:
    train, test = str(jsonl / "train.jsonl"), str(jsonl / "test.jsonl")
    pecos = str(Path(__file__).parent / "golden" / "pecos" / "model")
    commands = {
        "train": ["train", train, "-o", "{out}"],
        "calibrate": ["calibrate", str(model), test, "-o", "{out}"],
        "import-pecos": ["import-pecos", pecos, "{out}"],
        "demo": ["demo", "--lists", str(tmp_path / "nowhere"), "--out", "{out}"],
    }
    for name, arguments in commands.items():
        out = tmp_path / name
        shutil.copytree(model, out)
        before = (out / "manifest.json").read_bytes()
        command = [argument.format(out=out) for argument in arguments]
        result = run(*command)
        expected = f"carya: {out} already contains a model. Pass --force to replace it, or choose a different path.\n"
        assert (result.returncode, result.stdout, result.stderr) == (2, "", expected)
        assert (out / "manifest.json").read_bytes() == before
        if name == "demo":
            continue  # training the demo model takes too long
        result = run(*command, "--force", "--json")
        assert result.returncode == 0, result.stderr
        assert (out / "manifest.json").read_bytes() != before
        (out / "letter.txt").write_text("dear")
        assert "contains files that are not part of a Carya model." in run(*command, "--force").stderr
        assert (out / "letter.txt").read_text() == "dear"
    result = run("calibrate", str(tmp_path / "demo"), test)
    assert result.returncode == 0, "without -o, the model must be calibrated in place"
    (tmp_path / "empty").mkdir()
    assert run("import-pecos", pecos, str(tmp_path / "empty")).returncode == 0


def test_progress_is_logged_without_a_terminal_unless_quiet(jsonl: Path, model: Path, tmp_path: Path) -> None:
    code = "from carya.core.progress import ProgressLog; ProgressLog.__init__.__kwdefaults__['interval'] = 1e-6"
    for arguments in (
        ["train", str(jsonl / "train.jsonl"), "-o", "{out}"],
        ["evaluate", str(model), str(jsonl / "test.jsonl")],
    ):
        for quiet in ([], ["--quiet"]):
            out = tmp_path / f"{arguments[0]}{len(quiet)}"
            command = [sys.executable, "-c", f"{code}; from carya.cli import main; main()"]
            command += [argument.format(out=out) for argument in [*arguments, *quiet]]
            result = subprocess.run(command, capture_output=True, text=True, check=False)
            assert result.returncode == 0, result.stderr
            logged = [line for line in result.stderr.splitlines() if ", elapsed 0:" in line or ": elapsed 0:" in line]
            assert len(logged) == len(result.stderr.splitlines())
            assert bool(logged) is not bool(quiet)


def test_options_set_parameters(jsonl: Path, tmp_path: Path) -> None:
    options = {
        "--analyzer": "word,char_wb",
        "--ngram-range": "1,1/3,4",
        "--max-df": "0.9",
        "--norm": "l1",
        "--branching": "4",
        "--negatives": "teacher,both",
        "--index-features": "none",
        "--C": "2.5",
        "--random-state": "3",
        "--threads": "1",
    }
    out = tmp_path / "model"
    flags = [*itertools.chain.from_iterable(options.items()), "--no-lowercase", "--json"]
    result = run("train", str(jsonl / "train.jsonl"), "-o", str(out), *flags)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["rows"] == 300
    ranker = carya.load(out)
    tfidf, tree = ranker.vectorizer_, ranker.model_
    assert (tfidf.analyzer, tfidf.ngram_range) == (("word", "char_wb"), ((1, 1), (3, 4)))
    assert (tfidf.lowercase, tfidf.max_df, tfidf.norm) == (False, 0.9, "l1")
    assert (tree.branching, tree.negatives, tree.index_features) == (4, ("teacher", "both"), None)
    assert (tree.C, tree.seed, tree.verbose) == (2.5, 3, False)
    assert (tfidf.n_jobs, tree.n_jobs) == (1, 1)


def test_evaluate(model: Path, jsonl: Path) -> None:
    result = run("evaluate", str(model), str(jsonl / "test.jsonl"), "--json")
    assert result.returncode == 0, result.stderr
    ranker = carya.load(model)
    assert json.loads(result.stdout)["P@1"] == pytest.approx(ranker.score(*corpus(300, 1)))
    assert "nDCG" in run("evaluate", str(model), str(jsonl / "test.jsonl"), "--weight-dtypes").stdout


def test_unknown_labels_count_as_misses(model: Path, tmp_path: Path) -> None:
    row = {"text": TEXT, "labels": ["astronomy", "a new label", "another one"]}
    (tmp_path / "new.jsonl").write_text(json.dumps(row) + "\n")
    measured = json.loads(run("evaluate", str(model), str(tmp_path / "new.jsonl"), "--json").stdout)
    assert measured["R@10"] == pytest.approx(1 / 3)


@pytest.mark.parametrize("form", ["txt", "txt.gz", "jsonl", "csv", "-"])
def test_predict(model: Path, tmp_path: Path, form: str) -> None:
    texts, _ = corpus(5, seed=4)
    path = tmp_path / f"texts.{form}"
    if form.startswith("txt"):
        raw = ("\n".join(texts) + "\n").encode()
        path.write_bytes(gzip.compress(raw) if form.endswith("gz") else raw)
    elif form == "jsonl":
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    elif form == "csv":
        path.write_text("text,year\n" + "".join(f"{text},2020\n" for text in texts))
    source, standard_input = ("-", "\n".join(texts)) if form == "-" else (str(path), None)
    result = run("predict", str(model), source, "--top-k", "3", input=standard_input)
    assert result.returncode == 0, result.stderr
    rankings = [json.loads(line)["labels"] for line in result.stdout.splitlines()]
    expected = carya.load(model).suggest_all(texts, top_k=3)
    assert [[entry["label"] for entry in ranking] for ranking in rankings] == [
        [suggestion.label for suggestion in suggestions] for suggestions in expected
    ]


def test_predict_writes_files(model: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text(f"{TEXT}\n")
    result = run("predict", str(model), "texts.txt", "-o", "labels.jsonl.gz", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (0, ""), result.stderr
    (line,) = gzip.decompress((tmp_path / "labels.jsonl.gz").read_bytes()).decode().splitlines()
    assert len(json.loads(line)["labels"]) == 10
    (tmp_path / "empty.txt").touch()
    result = run("predict", str(model), "empty.txt", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (0, "")


@pytest.mark.parametrize(("options", "line"), [([], TEXT), (["--format", "jsonl"], json.dumps({"text": TEXT}))])
def test_predict_processes_each_line_as_it_arrives(model: Path, options: list[str], line: str) -> None:
    with start("predict", str(model), "-", *options, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        watchdog = threading.Timer(60, process.kill)
        watchdog.start()
        for _ in range(3):
            process.stdin.write(line + "\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["labels"]
        watchdog.cancel()
        process.stdin.close()
        assert process.wait(20) == 0


def test_explain(model: Path) -> None:
    explanation = json.loads(run("explain", str(model), TEXT, "--label", "astronomy", "--json").stdout)
    assert explanation["label"] == "astronomy"
    assert {"telescope", "planet"} <= {term["term"] for term in explanation["terms"]}
    printed = run("explain", str(model), TEXT).stdout
    best = carya.load(model).suggest(TEXT, top_k=1)[0]
    expected = carya.load(model).explain(TEXT, best.label)
    assert printed.startswith(f"{best.name}: score {expected.score:.4f}\n")
    assert f"all levels: {expected.score:.4f}" in printed
    assert printed.count("level ") == len(expected.levels)
    assert printed.count("cluster of") == len(expected.levels) - 1
    assert f"×{math.exp(expected.terms[0].contribution):.3g}  {expected.terms[0].term}" in printed
    assert "it is the score of an empty text" in run("explain", str(model), "", "--label", "chess").stdout
    assert run("explain", str(model), f"{TEXT} " * 200).returncode == 0, "a long text must not be treated as a path"
    from_input = run("explain", str(model), "-", "--json", input=TEXT)
    assert json.loads(from_input.stdout) == json.loads(json.dumps(expected.to_dict()))


def test_explain_shows_the_probability_of_a_calibrated_model(model: Path, jsonl: Path, tmp_path: Path) -> None:
    calibrated = str(tmp_path / "model")
    assert run("calibrate", str(model), str(jsonl / "test.jsonl"), "-o", calibrated).returncode == 0
    ranker = carya.load(calibrated)
    best = ranker.suggest(TEXT, top_k=1)[0]
    probability = ranker.calibration_([best.score])[0]
    assert f", probability {probability:.0%}\n" in run("explain", calibrated, TEXT).stdout


def test_explain_a_model_with_several_trees(model: Path, tmp_path: Path) -> None:
    tfidf = carya.load(model).vectorizer
    texts, labels = corpus(100)
    ensemble = carya.Ensemble(carya.XRLinear(max_leaf_size=8, n_jobs=1), n_trees=2)
    carya.TextRanker(tfidf, ensemble).fit(texts, labels).save(tmp_path / "two")
    carya.TextRanker(tfidf, carya.NearestNeighbors()).fit(texts, labels).save(tmp_path / "none")
    refused = run("explain", str(tmp_path / "two"), TEXT)
    assert refused.returncode == 2
    assert (
        "Combined scores of Ensemble models cannot be explained, only the scores of individual trees" in refused.stderr
    )
    assert "Pass --tree with a number from 1 to 2." in refused.stderr
    printed = run("explain", str(tmp_path / "two"), TEXT, "--tree", "2", "--label", "astronomy").stdout
    score = carya.load(tmp_path / "two").explain(TEXT, "astronomy", tree=1).score
    assert printed.startswith(f"astronomy: score {score:.4f} in tree 2")
    refused = run("explain", str(tmp_path / "two"), TEXT, "--tree", "3")
    assert "--tree must be at most 2, the number of trees in the model, got 3." in refused.stderr
    assert "NearestNeighbors models have no label tree." in run("explain", str(tmp_path / "none"), TEXT).stderr


def test_saved_models_are_silent(model: Path) -> None:
    ranker = carya.load(model)
    assert not ranker.vectorizer_.verbose
    assert not ranker.model_.verbose


def test_presets_and_trees(jsonl: Path, tmp_path: Path) -> None:
    for name, options, kind in [("fast", ["--preset", "fast"], "XRLinear"), ("three", ["--trees", "3"], "Ensemble")]:
        result = run("train", str(jsonl / "train.jsonl"), "-o", str(tmp_path / name), "--min-df", "1", *options)
        assert result.returncode == 0, result.stderr
        ranker = carya.load(tmp_path / name)
        assert type(ranker.model_).__name__ == kind
        assert not any(member.verbose for member in getattr(ranker.model_, "members_", ()))
        inspected = run("inspect", str(tmp_path / name))
        assert inspected.returncode == 0, inspected.stderr
        assert kind in inspected.stdout
    both = run("train", str(jsonl / "train.jsonl"), "-o", str(tmp_path / "no"), "--preset", "fast", "--trees", "3")
    assert both.returncode == 2
    assert "--trees cannot be combined with --preset" in both.stderr


def test_the_accurate_preset_uses_character_n_grams(jsonl: Path, tmp_path: Path) -> None:
    pytest.importorskip("lightgbm")
    data, accurate = str(jsonl / "train.jsonl"), ["--preset", "accurate", "--min-df", "1"]
    result = run("train", data, "-o", str(tmp_path / "model"), *accurate)
    assert result.returncode == 0, result.stderr
    ranker = carya.load(tmp_path / "model")
    assert list(ranker.vectorizer_.analyzer) == ["word", "char_wb"]
    assert ranker.model_.members_[0].widths_ == (ranker.vectorizer_.widths_[0], 0)
    result = run("train", data, "-o", str(tmp_path / "words"), *accurate, "--analyzer", "word")
    assert result.returncode == 0, result.stderr
    assert carya.load(tmp_path / "words").vectorizer_.analyzer == "word"


def test_missing_packages_are_reported_before_the_data_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    arguments = ["train", str(tmp_path / "missing.jsonl"), "-o", str(tmp_path / "model"), "--preset", "accurate"]
    result = CliRunner().invoke(app, arguments)
    assert isinstance(result.exception, MissingExtraError)
    assert "requires lightgbm" in str(result.exception)


def test_inspect(model: Path) -> None:
    assert "vectorizer: Tfidf(" in run("inspect", str(model)).stdout
    description = json.loads(run("inspect", str(model), "--json").stdout)
    assert description["vectorizer"]["terms"][0] > 20
    assert description["vectorizer"]["parameters"]["min_df"] == 2


def test_matrices(tmp_path: Path) -> None:
    X, Y = carya.data.make_world(400, 40, seed=0)
    sp.save_npz(tmp_path / "X.trn.npz", sp.csr_matrix(X))
    sp.save_npz(tmp_path / "Y.trn.npz", sp.csr_matrix(Y))
    result = run("train", str(tmp_path), "-o", str(tmp_path / "model"), "--max-leaf-size", "10", "--json")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["kind"] == "xr-linear"
    assert not carya.load(tmp_path / "model").verbose
    lines = run("predict", str(tmp_path / "model"), str(tmp_path / "X.trn.npz"), "--top-k", "1").stdout.splitlines()
    best = np.array([json.loads(line)["labels"][0]["label"] for line in lines])
    assert (Y[np.arange(400), best] > 0).mean() > 0.8
    measured = run("evaluate", str(tmp_path / "model"), str(tmp_path), "--part", "train", "--json")
    assert json.loads(measured.stdout)["rows"] == 400
    result = run("train", str(tmp_path), "-o", str(tmp_path / "no"), "--min-df", "3")
    assert result.returncode == 2
    assert "--min-df applies to texts, but" in result.stderr


@pytest.mark.transformer
def test_transformers_reject_matrices(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    sp.save_npz(tmp_path / "X.trn.npz", sp.csr_matrix(np.eye(4)))
    sp.save_npz(tmp_path / "Y.trn.npz", sp.csr_matrix(np.eye(4)))
    result = run("train", str(tmp_path), "-o", str(tmp_path / "no"), "--model", "xr-transformer")
    assert result.returncode == 2
    assert "XRTransformer requires texts, but" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "{data}", "-o", "m", "--C", "much"], "--C must be 'auto' or a number > 0; a pair of values"),
        (["train", "{data}", "-o", "m", "--norm", "l3"], "--norm must be 'l1', 'l2' or None, got 'l3'."),
        (["train", "{data}", "-o", "{data}"], "exists and is not a folder"),
        (["train", "{data}", "-o", "foreign"], "foreign contains files that are not part of a Carya model"),
        (["train", "{data}", "-o", "m", "--min-df", "400"], "No term occurs in at least 400"),
        (
            ["train", "{data}", "-o", "m", "--representation", "pifa+lf"],
            "requires label names or descriptions. Pass --vocabulary or --label-features.",
        ),
        (["train", "{data}", "-o", "m", "--penalty", "l1", "--loss", "hinge"], "penalty='l1' requires loss="),
        (["train", "{data}", "-o", "m", "--epochs", "1"], "--epochs requires --model xr-transformer or x-transformer."),
        (["train", "{data}", "-o", "m", "--model", "x-transformer", "--trees", "2"], "--trees requires --model xr-lin"),
        (["train", "{data}", "-o", "m", "--preset", "slice", "--branching", "4"], "no parameter 'branching'"),
        (["train", "t.jsonl", "-o", "m", "--labels", "t.jsonl"], "The format 'jsonl' does not support labels"),
        (["train", "empty.jsonl", "-o", "m"], "empty.jsonl contains no rows. At least one is required."),
        (["train", "empty.csv", "-o", "m"], "empty.csv: Missing header. The file is empty."),
        (["predict", "{model}", "x.npz"], "x.npz contains features, but"),
        (["predict", "{model}", "nowhere.txt"], "nowhere.txt: No such file or directory"),
        (["explain", "{model}", "telescope", "--label", "astronomi"], "Did you mean 'astronomy'?"),
        (["explain", "{model}", "zzz"], "The text contains no terms from the model's vocabulary."),
        (["evaluate", "{model}", "{data}", "y.npz"], "was trained on texts. Pass texts and their labels instead"),
        (["evaluate", "{model}", "x.npz"], "x.npz contains features, but"),
        (["evaluate", "{model}", "empty.jsonl"], "empty.jsonl contains no rows. At least one is required."),
        (["evaluate", "{model}", "t.jsonl"], "have no labels in common: the first label in the data is 'unknown'"),
        (["calibrate", "{model}", "x.npz"], "x.npz contains features, but"),
        (["demo", "--out", "foreign"], "foreign contains files that are not part of a Carya model"),
        (["demo", "--lists", "nowhere"], "--lists must be a folder with package lists, got nowhere."),
        (["data", "convert", "t.jsonl", "o.txt", "--to-labels", "o.txt"], "cannot store both texts and labels"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_invalid_usage_prints_one_line_and_writes_nothing(
    model: Path, jsonl: Path, tmp_path: Path, arguments: list[str], message: str
) -> None:
    (tmp_path / "t.jsonl").write_text(json.dumps({"text": "some words", "labels": ["unknown"]}) + "\n")
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "empty.csv").touch()
    sp.save_npz(tmp_path / "x.npz", sp.eye_array(3, format="csr"))
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "letter.txt").write_text("dear")
    before = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*"))
    names = {"data": str(jsonl / "train.jsonl"), "model": str(model)}
    result = run(*(argument.format(**names) for argument in arguments), cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("carya: ")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*")) == before


def test_standard_input_must_be_utf_8(model: Path) -> None:
    for arguments, message in (
        (["predict", str(model), "-"], b"carya: standard input, line 2: Invalid UTF-8: byte 0xff at position 5.\n"),
        (["explain", str(model), "-"], b"carya: Standard input must be valid UTF-8, but byte 10 is invalid.\n"),
    ):
        result = subprocess.run([*CARYA, *arguments], input=b"good\nbad \xff\n", capture_output=True, check=False)
        assert (result.returncode, result.stderr) == (2, message)


def test_a_broken_pipe_is_silent(model: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text(f"{TEXT}\n" * 20_000)
    pipe = 'set -o pipefail; "$@" | head -1'
    result = subprocess.run(
        ["bash", "-c", pipe, "-", *CARYA, "predict", str(model), str(tmp_path / "texts.txt")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.stdout.count("\n"), result.stderr, result.returncode) == (1, "", 1)


def test_a_full_disk_prints_a_one_line_error(model: Path) -> None:
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(
            [*CARYA, "predict", str(model)], input=TEXT, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (result.returncode, result.stderr) == (1, "carya: No space left on device\n")


def test_interrupted_training_leaves_no_files(tmp_path: Path) -> None:
    rows = enumerate(zip(*corpus(20_000, seed=7), strict=True))
    lines = (json.dumps({"text": f"{text} w{number}", "labels": labels}) for number, (text, labels) in rows)
    arguments = ["train", "-", "--format", "jsonl", "-o", "model", "--max-iter", "1000000", "--tol", "0"]
    with start(*arguments, cwd=tmp_path, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin
        process.stdin.write("\n".join(lines) + "\n")  # returns when the command has read almost all of the input
        process.stdin.close()
        time.sleep(1.0)
        process.send_signal(signal.SIGINT)
        process.stdin = None  # already closed, but communicate would try to flush it
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.strip() == "carya: Interrupted."
    assert not list(tmp_path.iterdir())


def test_annif_data(tmp_path: Path) -> None:
    texts, labels = corpus(200)
    known = sorted({label for row in labels for label in row})
    uris = {label: f"http://example.org/{number}" for number, label in enumerate(known)}
    rows = (f"{text}\t{' '.join(f'<{uris[label]}>' for label in row)}" for text, row in zip(texts, labels, strict=True))
    (tmp_path / "data.tsv").write_text("\n".join(rows) + "\n")
    (tmp_path / "vocabulary.tsv").write_text("".join(f"<{uri}>\t{label}\n" for label, uri in uris.items()))
    result = run("train", "data.tsv", "-o", "model", "--vocabulary", "vocabulary.tsv", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    first = run("predict", "model", "data.tsv", "--top-k", "1", cwd=tmp_path).stdout.splitlines()[0]
    (best,) = json.loads(first)["labels"]
    assert uris[best["name"]] == best["label"]
    result = run("evaluate", "model", "data.tsv", "--json", cwd=tmp_path)
    assert json.loads(result.stdout)["P@1"] > 0.9
    (tmp_path / "other.tsv").write_text("http://example.org/none\tnothing\n")
    result = run("train", "data.tsv", "-o", "other", "--vocabulary", "other.tsv", cwd=tmp_path)
    assert result.returncode == 2
    assert "names contains none of the labels: its first key is 'http://example.org/none'" in result.stderr


def test_svmlight_data(tmp_path: Path) -> None:
    rows = [f"{label} {1 + label}:1 {11 + row % 3}:0.5" for row in range(60) for label in range(1, 6)]
    (tmp_path / "train.svm").write_text("\n".join(rows) + "\n")
    (tmp_path / "test.svm").write_text("1 2:1\n2 3:1\n")  # fewer columns than the training data
    assert run("train", "train.svm", "-o", "model", cwd=tmp_path).returncode == 0
    result = run("evaluate", "model", "test.svm", "--json", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["P@1"] == 1.0
