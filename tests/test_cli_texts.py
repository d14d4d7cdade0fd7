"""From raw texts to labels by the command."""

from __future__ import annotations

import gzip
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import carya
from test_cli import run
from test_text_ranker import corpus

TEXT = "the telescope shows a planet and its moon"


@pytest.fixture(scope="module")
def jsonl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for part, seed in (("train", 0), ("test", 1)):
        texts, labels = corpus(300, seed)
        rows = (json.dumps({"text": text, "labels": some}) for text, some in zip(texts, labels, strict=True))
        (folder / f"{part}.jsonl").write_text("\n".join(rows) + "\n")
    return folder


@pytest.fixture(scope="module")
def model(jsonl: Path) -> Path:
    done = run("train", str(jsonl / "train.jsonl"), "-o", str(jsonl / "model"), "--max-leaf", "6")
    assert done.returncode == 0, done.stderr
    assert "300 rows" in done.stdout
    assert done.stderr == ""  # no bars where there is no terminal
    return jsonl / "model"


def test_flags_are_parameters(jsonl: Path, tmp_path: Path) -> None:
    out = tmp_path / "model"
    flags = [
        "--analyzer",
        "word,char_wb",
        "--ngram-range",
        "1,1/3,4",
        "--no-lowercase",
        "--max-df",
        "0.9",
        "--norm",
        "l1",
    ]
    flags += [
        "--branching",
        "4",
        "--negatives",
        "teacher,both",
        "--index-features",
        "none",
        "--cost",
        "2.5",
        "--seed",
        "3",
    ]
    done = run("train", str(jsonl / "train.jsonl"), "-o", str(out), "--json", "--threads", "1", *flags)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows"] == 300
    opened = carya.load(out)
    text, made = opened.vectorizer_, opened.model_
    assert (text.analyzer, text.ngram_range) == (("word", "char_wb"), ((1, 1), (3, 4)))
    assert (text.lowercase, text.max_df, text.norm) == (False, 0.9, "l1")
    assert (made.branching, made.negatives, made.index_features) == (4, ("teacher", "both"), None)
    assert (made.cost, made.seed, made.verbose) == (2.5, 3, False)


def test_evaluate(model: Path, jsonl: Path) -> None:
    done = run("evaluate", str(model), str(jsonl / "test.jsonl"), "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    ranker = carya.load(model)
    texts, labels = corpus(300, 1)
    assert found["P@1"] == pytest.approx(ranker.score(texts, labels))
    assert "nDCG" in run("evaluate", str(model), str(jsonl / "test.jsonl"), "--precisions").stdout


def test_labels_never_seen_count_as_missed(model: Path, tmp_path: Path) -> None:
    row = {"text": TEXT, "labels": ["astronomy", "a new label", "another one"]}
    (tmp_path / "new.jsonl").write_text(json.dumps(row) + "\n")
    found = json.loads(run("evaluate", str(model), str(tmp_path / "new.jsonl"), "--json").stdout)
    assert found["R@10"] == pytest.approx(1 / 3)


@pytest.mark.parametrize("form", ["txt", "txt.gz", "jsonl", "csv", "-"])
def test_predict(model: Path, tmp_path: Path, form: str) -> None:
    texts, _ = corpus(5, seed=4)
    ranker = carya.load(model)
    path = tmp_path / f"texts.{form}"
    if form.startswith("txt"):
        raw = ("\n".join(texts) + "\n").encode()
        path.write_bytes(gzip.compress(raw) if form.endswith("gz") else raw)
    elif form == "jsonl":
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    elif form == "csv":
        path.write_text("text,year\n" + "".join(f"{text},2020\n" for text in texts))
    command = [sys.executable, "-c", "from carya.cli import main; main()", "predict", str(model)]
    command += ["-" if form == "-" else str(path), "--top-k", "3"]
    given = "\n".join(texts) if form == "-" else None
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=True)
    answers = [json.loads(line)["labels"] for line in done.stdout.splitlines()]
    want = ranker.suggest_all(texts, top_k=3)
    assert [[one["label"] for one in answer] for answer in answers] == [[one.label for one in row] for row in want]


def test_answers_follow_at_once(model: Path) -> None:
    """A line in, a line out: nobody waits for the end of the input."""
    command = [sys.executable, "-c", "from carya.cli import main; main()", "predict", str(model), "-"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout
        for _ in range(3):
            process.stdin.write(TEXT + "\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["labels"]
        process.stdin.close()
        assert process.wait(20) == 0


def test_explain(model: Path) -> None:
    told = json.loads(run("explain", str(model), TEXT, "--label", "astronomy", "--json").stdout)
    assert told["label"] == "astronomy"
    assert {"telescope", "planet"} <= {one["term"] for one in told["terms"]}
    shown = run("explain", str(model), TEXT).stdout
    best = carya.load(model).suggest(TEXT, top_k=1)[0]
    why = carya.load(model).explain(TEXT, best.label)
    assert shown.startswith(f"{best.name}: {why.score:.4f}")
    assert f"all levels: {why.score:.4f}" in shown
    assert shown.count("level ") == len(why.levels)
    assert shown.count("cluster of") == len(why.levels) - 1, "clusters have names"
    assert f"×{math.exp(why.terms[0].share):.3g}  {why.terms[0].term}" in shown
    none = run("explain", str(model), "", "--label", "chess").stdout
    assert "that of a text without any known term" in none
    command = [sys.executable, "-c", "from carya.cli import main; main()", "explain", str(model), "-", "--json"]
    read = subprocess.run(command, input=TEXT.encode(), capture_output=True, check=True)
    assert json.loads(read.stdout) == json.loads(json.dumps(why.to_dict()))
    bad = subprocess.run(command, input=b"bad \xff", capture_output=True, check=False)
    assert (bad.returncode, bad.stderr) == (2, b"carya: standard input: not UTF-8 (byte 5)\n")


def test_explain_a_model_of_several_trees(jsonl: Path, model: Path, tmp_path: Path) -> None:
    ranker = carya.load(model)
    texts, labels = corpus(100)
    several = carya.Ensemble(carya.XRLinear(max_leaf=8, n_jobs=1), n_trees=2)
    carya.TextRanker(ranker.vectorizer, several).fit(texts, labels).save(tmp_path / "two")
    carya.TextRanker(ranker.vectorizer, carya.NearestNeighbours()).fit(texts, labels).save(tmp_path / "none")
    refused = run("explain", str(tmp_path / "two"), TEXT)
    assert refused.returncode == 2
    assert "of its 2 trees can: give --tree 1 to --tree 2" in refused.stderr
    shown = run("explain", str(tmp_path / "two"), TEXT, "--tree", "2", "--label", "astronomy").stdout
    score = carya.load(tmp_path / "two").explain(TEXT, "astronomy", tree=1).score
    assert shown.startswith(f"astronomy: {score:.4f} by tree 2")
    assert "--tree is 3, the model has 2 trees" in run("explain", str(tmp_path / "two"), TEXT, "--tree", "3").stderr
    assert "NearestNeighbours, which has no label tree" in run("explain", str(tmp_path / "none"), TEXT).stderr


def test_a_saved_model_is_quiet(model: Path) -> None:
    opened = carya.load(model)
    assert not opened.vectorizer_.verbose
    assert not opened.model_.verbose


def test_presets_and_trees(jsonl: Path, tmp_path: Path) -> None:
    for name, flags, kind in [("fast", ["--preset", "fast"], "XRLinear"), ("three", ["--trees", "3"], "Ensemble")]:
        done = run("train", str(jsonl / "train.jsonl"), "-o", str(tmp_path / name), "--min-df", "1", *flags)
        assert done.returncode == 0, done.stderr
        opened = carya.load(tmp_path / name)
        assert type(opened.model_).__name__ == kind
        shown = run("inspect", str(tmp_path / name))
        assert shown.returncode == 0, shown.stderr
        assert kind in shown.stdout
    both = run("train", str(jsonl / "train.jsonl"), "-o", str(tmp_path / "no"), "--preset", "fast", "--trees", "3")
    assert both.returncode == 2
    assert "--trees cannot be told besides --preset" in both.stderr
    unknown = run("train", str(jsonl / "train.jsonl"), "-o", str(tmp_path / "no"), "--preset", "fats")
    assert unknown.returncode == 2
    assert "did you mean 'fast'" in unknown.stderr


def test_inspect(model: Path) -> None:
    assert "Tfidf(" in run("inspect", str(model)).stdout
    assert json.loads(run("inspect", str(model), "--json").stdout)["texts"]["terms"][0] > 20


def test_matrices(tmp_path: Path) -> None:
    X, Y = carya.data.make_world(400, 40, seed=0)
    sp.save_npz(tmp_path / "X.trn.npz", sp.csr_matrix(X))
    sp.save_npz(tmp_path / "Y.trn.npz", sp.csr_matrix(Y))
    done = run("train", str(tmp_path), "-o", str(tmp_path / "model"), "--max-leaf", "10")
    assert done.returncode == 0, done.stderr
    lines = run("predict", str(tmp_path / "model"), str(tmp_path / "X.trn.npz"), "--top-k", "1").stdout.splitlines()
    best = np.array([json.loads(line)["labels"][0]["label"] for line in lines])
    assert (Y[np.arange(400), best] > 0).mean() > 0.8
    found = run("evaluate", str(tmp_path / "model"), str(tmp_path), "--part", "train", "--json")
    assert json.loads(found.stdout)["rows"] == 400


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "nowhere.jsonl", "-o", "m"], "carya: nowhere.jsonl: No such file or directory"),
        (["train", "{data}", "-o", "m", "--cost", "much"], "carya: --cost is 'much'; it must be a number above 0"),
        (["train", "{data}", "-o", "m", "--norm", "l3"], "carya: --norm is 'l3'; it must be 'l1', 'l2' or None"),
        (["train", "{data}", "-o", "m", "--treshold", "1"], "--threshold"),
        (["train", "{data}", "-o", "{data}"], "exists and is not a folder"),
        (["train", "{data}", "-o", "m", "--min-df", "400"], "carya: no term is in at least 400"),
        (["predict", "nowhere"], "carya: nowhere is not a Carya model"),
        (["predict", "{model}", "{folder}/x.npz"], "No such file or directory"),
        (["explain", "{model}", "telescope", "--label", "astronomi"], "did you mean 'astronomy'?"),
        (["explain", "{model}", "zzz"], "carya: the model knows no term of the text"),
        (["evaluate", "{model}", "{data}", "y.npz"], "was trained on texts"),
    ],
)
def test_what_cannot_be(model: Path, jsonl: Path, tmp_path: Path, arguments: list[str], message: str) -> None:
    names = {"data": str(jsonl / "train.jsonl"), "model": str(model), "folder": str(jsonl)}
    done = run(*(one.format(**names) for one in arguments), cwd=tmp_path)
    assert done.returncode == 2, done.stdout
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "m").exists()


def test_input_that_is_no_text(model: Path) -> None:
    command = [sys.executable, "-c", "from carya.cli import main; main()", "predict", str(model), "-"]
    done = subprocess.run(command, input=b"good\nbad \xff\n", capture_output=True, check=False)
    assert done.returncode == 2
    assert b"carya: standard input, line 2: not UTF-8 (byte 5)" in done.stderr


def test_a_broken_pipe_is_no_trouble(model: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text(f"{TEXT}\n" * 20_000)
    line = f"{sys.executable} -c 'from carya.cli import main; main()' predict {model} {tmp_path}/texts.txt | head -1"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
    assert done.stdout.count("\n") == 1
    assert "Traceback" not in done.stderr


def test_an_interrupted_training_leaves_nothing(tmp_path: Path) -> None:
    texts, labels = corpus(20_000, seed=7)
    rows = (
        json.dumps({"text": f"{text} w{i}", "labels": some})
        for i, (text, some) in enumerate(zip(texts, labels, strict=True))
    )
    (tmp_path / "big.jsonl").write_text("\n".join(rows) + "\n")
    command = [sys.executable, "-c", "from carya.cli import main; main()", "train", "big.jsonl", "-o", "model"]
    command += ["--max-passes", "2000", "--tolerance", "0"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        time.sleep(2.0)
        os.kill(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "carya: interrupted" in errors
    assert sorted(path.name for path in tmp_path.iterdir()) == ["big.jsonl"]


def test_help_ends_with_examples() -> None:
    for verb in ("train", "predict", "evaluate", "explain", "inspect", "demo", "import-pecos"):
        said = run(verb, "--help").stdout
        assert "Examples:" in said, verb
        assert said.rstrip().splitlines()[-1].strip().startswith(("carya", "zcat", "cat", "echo")), verb
    assert "--beam-width" in run("train", "--help").stdout


def test_annif_data(tmp_path: Path) -> None:
    texts, labels = corpus(200)
    uris = {
        label: f"http://example.org/{at}" for at, label in enumerate(sorted({one for row in labels for one in row}))
    }
    rows = (f"{text}\t{' '.join(f'<{uris[one]}>' for one in row)}" for text, row in zip(texts, labels, strict=True))
    (tmp_path / "data.tsv").write_text("\n".join(rows) + "\n")
    (tmp_path / "voc.tsv").write_text("".join(f"<{uri}>\t{label}\n" for label, uri in uris.items()))
    done = run("train", "data.tsv", "-o", "model", "--vocabulary", "voc.tsv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    first = run("predict", "model", "data.tsv", "--top-k", "1", cwd=tmp_path).stdout.splitlines()[0]
    (best,) = json.loads(first)["labels"]
    assert uris[best["name"]] == best["label"]
    done = run("evaluate", "model", "data.tsv", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["P@1"] > 0.9
    (tmp_path / "other.tsv").write_text("http://example.org/none\tnothing\n")
    done = run("train", "data.tsv", "-o", "model", "--vocabulary", "other.tsv", cwd=tmp_path)
    assert done.returncode == 2
    assert "names has none of the labels: it has 'http://example.org/none'" in done.stderr


def test_svmlight_data(tmp_path: Path) -> None:
    rows = [f"{label} {1 + label}:1 {11 + row % 3}:0.5" for row in range(60) for label in range(1, 6)]
    (tmp_path / "train.svm").write_text("\n".join(rows) + "\n")
    (tmp_path / "test.svm").write_text("1 2:1\n2 3:1\n")  # far fewer columns
    assert run("train", "train.svm", "-o", "model", cwd=tmp_path).returncode == 0
    done = run("evaluate", "model", "test.svm", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["P@1"] == 1.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "t.jsonl", "-o", "m", "--labels", "t.jsonl"], "the format 'jsonl' knows no labels"),
        (["train", "t.jsonl", "-o", "foreign"], "it is left alone"),
        (["demo", "--out", "foreign"], "it is left alone"),
        (["demo", "--lists", "nowhere"], "nowhere is no folder of package lists"),
        (["data", "convert", "t.jsonl", "o.txt", "--to-labels", "o.txt"], "cannot hold both texts and labels"),
        (["evaluate", "{model}", "empty.jsonl"], "there are no rows to evaluate on"),
        (["evaluate", "{model}", "t.jsonl"], "the model knows none of its labels"),
        (["predict", "{model}", "t.txt", "--threads", "0"], "'n_jobs'"),
        (["train", "t.jsonl", "-o", "m", "--representation", "pifa+lf"], "give --vocabulary"),
    ],
)
def test_what_is_refused(model: Path, tmp_path: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "t.jsonl").write_text(json.dumps({"text": "some words", "labels": ["unheard of"]}) + "\n")
    (tmp_path / "t.txt").write_text("some words\n")
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "letter.txt").write_text("dear")
    done = run(*(one.format(model=model) for one in arguments), cwd=tmp_path)
    assert done.returncode == 2, done.stdout
    assert message in done.stderr
    assert (tmp_path / "foreign" / "letter.txt").exists()


def test_a_full_disk_is_one_line(model: Path) -> None:
    line = f"echo {TEXT} | {sys.executable} -c 'from carya.cli import main; main()' predict {model} > /dev/full"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "No space left on device" in done.stderr


def test_json_lines_are_answered_as_they_come(model: Path) -> None:
    command = [
        sys.executable,
        "-c",
        "from carya.cli import main; main()",
        "predict",
        str(model),
        "-",
        "--format",
        "jsonl",
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(json.dumps({"text": TEXT}) + "\n")
        process.stdin.flush()
        waited = threading.Timer(20, process.kill)
        waited.start()
        assert json.loads(process.stdout.readline())["labels"]
        waited.cancel()
        process.stdin.close()
        assert process.wait(20) == 0
