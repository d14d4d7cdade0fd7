"""Tests for common mistakes on the command line and in Python, and for the resulting error messages.

Every mistake leads to a one-line message that states what is wrong. On the command line, the exit code is 2; in Python,
the exception is a :class:`carya.errors.CaryaError`. Nothing is accepted silently, and no file is written.
"""

from __future__ import annotations

import gc
import io
import json
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import carya
from carya.cli import main
from carya.data import Corpus, make_world, open_data, write_data  # noqa: F401 - used in expressions
from carya.data.formats.registry import FORMATS
from carya.errors import (
    CaryaError,
    InputError,
    MissingExtraError,
    ModelFormatError,
    NotFittedError,
    ParameterError,
    SaveError,
    UnknownParameterError,
)

from topics import corpus

TEXTS, LABELS = corpus(120)
X, Y = make_world(100, 10, seed=0)

#: Command lines and the messages that they print. The files are created by the fixture `folder`.
COMMANDS = {
    # The command, its arguments and options
    "trian data.jsonl": "Unknown command 'trian'. Did you mean 'train'? Run 'carya --help' for usage.",
    "--verison": "Unknown option '--verison'. Did you mean '--version'?",
    "train": "Missing argument 'DATA'. Run 'carya train --help' for usage.",
    "train data.jsonl": "Missing option '--out' / '-o'. Run 'carya train --help' for usage.",
    "train data.jsonl other.csv -o m": "Got unexpected extra argument (other.csv). Run 'carya train --help' for usage.",
    "train data.jsonl -o m --beam-widht 3": "Unknown option '--beam-widht'. Did you mean '--beam-width'?",
    "train data.jsonl -o m --preset fsat": (
        "Unknown preset 'fsat'. Did you mean 'fast'? Presets: parabel, bonsai, dismec, plt, xr-linear, slice, "
        "annexml, fast, small, tail, balanced, accurate."
    ),
    "train data.jsonl -o m --preset fast --trees 3": (
        "--trees cannot be combined with --preset, which sets the number of trees."
    ),
    "train data.jsonl -o m --epochs 3": "--epochs requires --model xr-transformer or x-transformer.",
    "train data.jsonl -o m --beam-width -3": "--beam-width must be an integer >= 1, got -3.",
    "train data.jsonl -o m --beam-width 2.5": "--beam-width must be an integer >= 1, got 2.5.",
    "train data.jsonl -o m --n-jobs 99999999999": (
        "--n-jobs must be -1 or an integer between 1 and 2147483647, got 99999999999."
    ),
    "train data.jsonl -o m --C nan": (
        "--C must be 'auto' or a number > 0; a pair of values for the inner layers and the last layer; or one value "
        "per layer, got nan."
    ),
    "train data.jsonl -o m --norm l3": "--norm must be 'l1', 'l2' or None, got 'l3'.",
    "train data.jsonl -o m --ngram-range 2,1": (
        "--ngram-range must be a pair of integers (min, max) with 1 <= min <= max <= 100, or a list of pairs, one "
        "per analyzer, got (2, 1)."
    ),
    "train data.jsonl -o m --min-df 500": (
        "No term occurs in at least 500 and at most 120 of the 120 texts. Decrease min_df (now 500), increase "
        "max_df (now 1.0), or pass longer texts."
    ),
    # The data
    "train missing.jsonl -o m": "missing.jsonl: No such file or directory.",
    "train empty.jsonl -o m": "empty.jsonl contains no rows. At least one is required.",
    "train empty.csv -o m": "empty.csv: Missing header. The file is empty.",
    "train binary.jsonl -o m": "binary.jsonl, line 2: Invalid UTF-8: byte 0x80 at position 118.",
    "train broken.jsonl -o m": "broken.jsonl, line 2: Invalid JSON at character 10: Expecting value.",
    "train other.csv -o m": 'other.csv, line 1: Missing column "text"; the columns are "title", "tags".',
    "train other.csv -o m --text-column title": (
        'other.csv, line 1: Missing column "labels"; the columns are "title", "tags".'
    ),
    "train string.jsonl -o m": (
        "string.jsonl, line 1: \"labels\" must be a list of strings or integers, got 'x'. To split strings into "
        "labels, pass label_separator (--label-separator)."
    ),
    "train numbers.jsonl -o m": (
        'numbers.jsonl, line 1: "labels" must be a list of strings or integers, but contains 1.5.'
    ),
    "train number.jsonl -o m": 'number.jsonl, line 1: "text" must be a string, got 5.',
    "train unlabeled.jsonl -o m --min-df 1": "No text has a label. At least one label is required.",
    "train texts.txt --labels short.txt -o m": "short.txt ends after line 1, but texts.txt has more lines.",
    "train data.jsonl -o m --part test": "--part selects a part of a folder, but data.jsonl is not a folder.",
    "train data.jsonl -o m --test": "--test selects a part of a folder, but data.jsonl is not a folder.",
    "train . -o m --test --part dev": "--test cannot be combined with --part dev.",
    "train data.jsonl -o m --zero-based": "data.jsonl: The format 'jsonl' does not support zero_based.",
    "train data.svm -o m --vocabulary short.txt": "data.svm: There are 2 labels, but at most 1 are expected.",
    "train data.jsonl -o m --tree short.txt": "short.txt, line 1: Expected 2 tab-separated columns, got 'astronomy'.",
    "train data.jsonl -o m --model x-transformer --tree short.txt": (
        "--tree requires --model xr-linear, got --model x-transformer."
    ),
    "train data.jsonl -o m --format jsnol": (f"data.jsonl: format must be one of {', '.join(FORMATS)}, got 'jsnol'."),
    "train data.jsonl -o m --language de": (
        "--language requires --vocabulary, because it selects the language of the label names."
    ),
    "train data.jsonl -o m --vocabulary empty.txt": (
        "empty.txt contains no labels. Pass a file with one label per line."
    ),
    "train data.jsonl -o m --vocabulary missing.ttl": "missing.ttl: No such file or directory.",
    # The output
    "train data.jsonl -o model": (
        "model already contains a model. Pass --force to replace it, or choose a different path."
    ),
    "train data.jsonl -o texts.txt": "texts.txt exists and is not a folder. Choose a different path.",
    "train data.jsonl -o texts.txt/m": (
        "texts.txt/m cannot be created, because texts.txt is not a folder. Choose a different path."
    ),
    "train data.jsonl -o foreign --force": (
        "foreign contains files that are not part of a Carya model. It was not modified. Choose a different path."
    ),
    "predict model texts.txt -o foreign": "foreign: Is a directory.",
    "predict model texts.txt -o texts.txt/x.jsonl": "texts.txt/x.jsonl: Not a directory.",
    "predict model texts.txt -o texts.txt": "texts.txt is also the input. Choose a different path for the output.",
    "predict model texts.txt -o labels.xlsx": (
        'labels.xlsx: Unknown output type ".xlsx". Use .jsonl, .csv or .tsv, or pass --output-format.'
    ),
    "data convert data.jsonl other.jsonl --part test": (
        "--part selects a part of a folder, but neither data.jsonl nor other.jsonl is a folder."
    ),
    "data convert data.jsonl data.jsonl": "data.jsonl is also the input. Choose a different path for the output.",
    # The model
    "predict missing texts.txt": "missing is not a Carya model: there is no such folder.",
    "predict texts.txt model": "texts.txt is not a Carya model: it is a file, not a folder.",
    "predict foreign texts.txt": "foreign is not a Carya model: manifest.json is missing.",
    "predict truncated texts.txt": (
        "truncated: arrays.bin is truncated, or array 'text.0.ends' has an invalid offset or shape."
    ),
    "predict flipped texts.txt": "flipped: arrays.bin is damaged: the checksum of the block at byte 0 does not match.",
    "predict future texts.txt": "future has format 3, but this version of Carya reads formats up to 2. Upgrade Carya.",
    "predict tfidf texts.txt": (
        "tfidf contains a vectorizer, not a model. Train a model with: carya train TEXTS -o MODEL"
    ),
    "serve missing": "missing is not a Carya model: there is no such folder.",
    "serve tfidf": (
        "Only models can be served, but tfidf contains an object of type Tfidf. Train a model with: "
        "carya train DATA -o MODEL"
    ),
    "serve model --port 99999": "--port must be an integer between 0 and 65535, got 99999.",
    # Texts and features
    "predict model X.npz": "X.npz contains features, but model was trained on texts. Pass texts.",
    "predict features texts.txt": (
        "features was trained on features. DATA must contain features, but texts.txt does not."
    ),
    "predict features data.jsonl": (
        "features was trained on features. DATA must contain features, but data.jsonl does not."
    ),
    "predict model data.svm": "data.svm contains features, but model was trained on texts. Pass texts.",
    "predict model 'a planet' --one-based": (
        "--zero-based or --one-based applies to a file or folder, but 'a planet' is neither. Pass a path."
    ),
    "predict model 'a planet' --test": "--test applies to a file or folder, but 'a planet' is neither. Pass a path.",
    "predict features 'a text'": "features was trained on features. DATA must contain features, got a text.",
    "predict features nan.npy": "nan.npy: X contains NaN or infinity.",
    "predict features narrow.npz": "narrow.npz: X has 5 columns, but must have 660, as in training.",
    "predict features vector.npy": "vector.npy: X must have 2 dimensions, got 1.",
    "predict features strings.npy": "strings.npy: X must contain real numbers, got dtype <U1.",
    "predict features archive.npz": (
        "archive.npz does not contain a matrix: The file archive.npz does not contain a sparse array or matrix."
    ),
    "explain features 'a text'": (
        "carya explain requires a text model, but features contains a model of kind XRLinear. Train a text model "
        "with: carya train TEXTS -o MODEL"
    ),
    # Ranking and explaining
    "predict model missing.txt": (
        "missing.txt: No such file or directory. If it is a text, pass it on standard input: echo 'missing.txt' | "
        "carya predict model"
    ),
    "predict model ''": "An argument is empty. Pass a text, a file or a folder, or - for standard input.",
    "predict model 'a planet' texts.txt": (
        "texts.txt is a file or folder. Pass either a single file or folder, or only texts."
    ),
    "predict model 'a planet' --text-column title": (
        "--text-column applies to a file or folder, but 'a planet' is neither. Pass a path."
    ),
    "predict model texts.txt --text-column title": (
        "texts.txt contains one text per line, without columns. Remove --text-column, or pass --format."
    ),
    "predict model texts.txt --top-k -1": "--top-k must be an integer >= 1, got -1.",
    "predict model texts.txt --min-score high": "--min-score must be a number, got 'high'.",
    "predict model data.parquet": "data.parquet requires pyarrow. Install it with: pip install 'carya[arrow]'",
    "explain model 'a planet' --label astronomi": "Unknown label 'astronomi'. Did you mean 'astronomy'?",
    "explain model 'a planet' --tree 2": "--tree must be at most 1, the number of trees in the model, got 2.",
    "explain model texts.txt": (
        "texts.txt is a file. Pass its text on standard input: carya explain model - < texts.txt"
    ),
    "explain model zzz": (
        "The text contains no terms from the model's vocabulary. Pass a different text, or select a label with --label."
    ),
    # Evaluation
    "evaluate model unlabeled.jsonl": "unlabeled.jsonl contains no labels. At least one is required.",
    "evaluate model foreign.jsonl": (
        "foreign.jsonl and model have no labels in common: the first label in the data is 'unknown', and the first "
        "label in the model is 'astronomy'. Use the same --vocabulary as in training."
    ),
    "evaluate features X.npz": (
        "X.npz contains only features. Also pass the labels: carya evaluate features X.npz Y.npz"
    ),
    "evaluate features X.npz short.npz": (
        "X.npz has shape (100, 660), but short.npz has 50 rows. Both must be matrices with the same number of rows."
    ),
    "evaluate features X.npz negative.npy": (
        "negative.npy has negative values. Entries must be positive where a row has a label, and 0 elsewhere."
    ),
    "evaluate model data.jsonl --train X.npz": (
        "--train must contain texts, like the model's training data, but X.npz is a matrix."
    ),
    "evaluate model data.jsonl --per-label-k 3": ("--per-label-k requires --per-label or --report."),
    "calibrate model empty.jsonl -o m": "empty.jsonl contains no rows. At least one is required.",
    "calibrate model foreign.jsonl -o m": (
        "foreign.jsonl and model have no labels in common: the first label in the data is 'unknown', and the first "
        "label in the model is 'astronomy'. Use the same --vocabulary as in training."
    ),
    # Other commands
    "vectorize X.npz -o V.npz": "X.npz contains features. Pass texts.",
    "vectorize data.jsonl -o V.npz --model features": (
        "features was trained on features and has no vectorizer. Pass a model trained on texts."
    ),
    "encode data.jsonl -o E.npy": "Pass either --encoder or --model (a saved transformer model).",
    "import-pecos model m": "model is not a libpecos XR-Linear model: the folder ranker/ is missing.",
    "data synth m --scale 0": "scale must be > 0 and <= 10, got 0.",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mistakes")
    rows = [json.dumps({"text": text, "labels": names}) for text, names in zip(TEXTS, LABELS, strict=True)]
    for name, content in {
        "data.jsonl": "\n".join(rows) + "\n",
        "other.csv": "title,tags\na planet,astronomy\n",
        "texts.txt": "a planet\na moon\n",
        "short.txt": "astronomy\n",
        "empty.txt": "",
        "data.svm": "0 0:1 1:1\n1 0:1\n",
        "empty.csv": "",
        "empty.jsonl": "",
        "broken.jsonl": '{"text": "a", "labels": ["x"]}\n{"text": \n',
        "string.jsonl": '{"text": "a", "labels": "x"}\n',
        "numbers.jsonl": '{"text": "a", "labels": [1.5]}\n',
        "number.jsonl": '{"text": 5, "labels": ["x"]}\n',
        "unlabeled.jsonl": '{"text": "some words", "labels": []}\n',
        "foreign.jsonl": '{"text": "a planet", "labels": ["unknown"]}\n',
        "foreign/letter.txt": "dear",
    }.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)
    (folder / "binary.jsonl").write_bytes(b'{"text": "a", "labels": []}\n' + b" " * 117 + bytes(range(0x80, 0x100)))
    (folder / "data.parquet").write_bytes(b"PAR1")
    sp.save_npz(folder / "X.npz", X)
    sp.save_npz(folder / "narrow.npz", X[:, :5])
    sp.save_npz(folder / "short.npz", Y[:50])
    np.savez(folder / "archive.npz", a=1)
    np.save(folder / "nan.npy", np.full((3, X.shape[1]), np.nan))
    np.save(folder / "vector.npy", np.ones(X.shape[1]))
    np.save(folder / "strings.npy", np.full((3, X.shape[1]), "a"))
    np.save(folder / "negative.npy", -Y.toarray())
    carya.TextRanker().fit(TEXTS, LABELS).save(folder / "model")
    carya.XRLinear().fit(X, Y).save(folder / "features")
    carya.Tfidf().fit(TEXTS).save(folder / "tfidf")
    for name in ("truncated", "flipped", "future"):
        shutil.copytree(folder / "model", folder / name)
    arrays = (folder / "model" / "arrays.bin").read_bytes()
    (folder / "truncated" / "arrays.bin").write_bytes(arrays[: len(arrays) // 2])
    (folder / "flipped" / "arrays.bin").write_bytes(arrays[:1000] + bytes([arrays[1000] ^ 1]) + arrays[1001:])
    manifest = (folder / "model" / "manifest.json").read_text()
    (folder / "future" / "manifest.json").write_text(manifest.replace('"format": 2', '"format": 3'))
    return folder


@pytest.fixture
def in_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Run a test in the folder, and check that the test does not modify any file."""
    monkeypatch.chdir(folder)
    monkeypatch.setitem(sys.modules, "pyarrow", None)  # as if it were not installed
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    yield folder
    gc.enable()  # training disables garbage collection
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


@pytest.mark.parametrize(("command", "message"), COMMANDS.items(), ids=list(COMMANDS))
def test_on_the_command_line(
    command: str,
    message: str,
    in_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["carya", *shlex.split(command)])
    with pytest.raises(SystemExit) as exited:
        main()
    captured = capfd.readouterr()
    assert (exited.value.code, captured.out, captured.err) == (2, "", f"carya: {message}\n")


def test_the_tables_are_long() -> None:
    assert len(COMMANDS) + len(CALLS) >= 120


@pytest.fixture(scope="module")
def ranker() -> carya.TextRanker:
    return carya.TextRanker().fit(TEXTS, LABELS)


@pytest.fixture(scope="module")
def model() -> carya.XRLinear:
    return carya.XRLinear().fit(X, Y)


def with_nan() -> np.ndarray:
    features: np.ndarray = X.toarray()
    features[3, 3] = np.nan
    return features


#: Expressions, the exceptions that they raise, and the messages. `m` is a fitted XRLinear and `r` is a fitted
#: TextRanker. The expressions are strings because type checkers would reject most of them.
CALLS: dict[str, tuple[type[CaryaError], str]] = {
    # Parameters
    "carya.XRLinear(beam_widht=3)": (
        UnknownParameterError,
        "XRLinear has no parameter 'beam_widht'. Did you mean 'beam_width'?",
    ),
    "carya.XRLinear(threads=3)": (UnknownParameterError, "XRLinear has no parameter 'threads'. Use n_jobs."),
    "carya.TextRanker(seed=3)": (UnknownParameterError, "TextRanker has no parameter 'seed'."),
    "m.clone().set_params(beam_widht=3)": (
        UnknownParameterError,
        "XRLinear has no parameter 'beam_widht'. Did you mean 'beam_width'?",
    ),
    "carya.XRLinear(beam_width='3').fit(X, Y)": (ParameterError, "beam_width must be an integer >= 1, got '3'."),
    "carya.XRLinear(beam_width=True).fit(X, Y)": (ParameterError, "beam_width must be an integer >= 1, got True."),
    "carya.XRLinear(beam_width=2**40).fit(X, Y)": (
        ParameterError,
        "beam_width must be an integer between 1 and 2147483647, got 1099511627776.",
    ),
    "carya.XRLinear(C=float('nan')).fit(X, Y)": (
        ParameterError,
        "C must be 'auto' or a number > 0; a pair of values for the inner layers and the last layer; or one value per "
        "layer, got nan.",
    ),
    "carya.Tfidf(analyzer='words').fit(TEXTS)": (
        ParameterError,
        "analyzer must be one of 'word', 'char', 'char_wb', a list of these, or 'auto', got 'words'.",
    ),
    "carya.Tfidf(stop_words='german').fit(TEXTS)": (
        ParameterError,
        "stop_words must be a list of words, 'english' or None, got 'german'.",
    ),
    "carya.TextRanker(carya.XRLinear()).fit(TEXTS, LABELS)": (
        ParameterError,
        "vectorizer must be a Tfidf or None, got XRLinear().",
    ),
    "carya.TextRanker(model='fast').fit(TEXTS, LABELS)": (
        ParameterError,
        "model must be a model such as XRLinear or None, got 'fast'.",
    ),
    "carya.Ensemble([]).fit(X, Y)": (
        ParameterError,
        "members must be a model such as XRLinear, or a non-empty list of models, got [].",
    ),
    "carya.preset('fsat')": (
        ParameterError,
        "Unknown preset 'fsat'. Did you mean 'fast'? Presets: parabel, bonsai, dismec, plt, xr-linear, slice, annexml, "
        "fast, small, tail, balanced, accurate.",
    ),
    # Features and labels
    "carya.XRLinear().fit(TEXTS, LABELS)": (
        InputError,
        "X must be a matrix of numbers, got strings. Use carya.TextRanker for texts and labels.",
    ),
    "carya.XRLinear().fit(X, LABELS)": (InputError, "X has 100 rows, but Y has 120."),
    "carya.XRLinear().fit(X, ['a', ['b']] * 50)": (
        InputError,
        "Y[1] must be a label, as in the preceding rows, got list.",
    ),
    "carya.XRLinear().fit(X[:50], Y)": (InputError, "X has 50 rows, but Y has 100."),
    "carya.XRLinear().fit(with_nan(), Y)": (InputError, "X contains NaN or infinity."),
    "carya.XRLinear().fit(X, -Y)": (
        InputError,
        "Y has negative values. Entries must be positive where a row has a label, and 0 elsewhere.",
    ),
    "carya.XRLinear().fit(X, Y * 0)": (InputError, "Y has no positive entries. At least one row must have a label."),
    "carya.XRLinear().fit(X, np.arange(100) / 2)": (
        InputError,
        "Y must be a matrix with one column per label, or contain one label or one list of labels (strings or "
        "integers) per row, got an array of float64 with 1 dimension.",
    ),
    "carya.XRLinear().fit(X[:0], Y[:0])": (InputError, "X has no rows."),
    "carya.XRLinear().predict(X)": (NotFittedError, "This XRLinear is not fitted yet. Call fit first."),
    "m.predict(X[:, :5])": (InputError, "X has 5 columns, but must have 660, as in training."),
    "m.predict(TEXTS)": (
        InputError,
        "X must be a matrix of numbers, got strings. Use carya.TextRanker for texts and labels.",
    ),
    "m.predict(X, top_k=-1)": (InputError, "top_k must be an integer >= 1, got -1."),
    "m.predict(X, top_k='5')": (InputError, "top_k must be an integer >= 1, got '5'."),
    "m.predict(X, min_score='high')": (InputError, "min_score must be a number or None, got 'high'."),
    "m.rank(X)": (InputError, "x has 100 rows, but rank accepts a single row. Use predict for several rows."),
    "m.explain(X[[0]], 99)": (InputError, "label must be an integer between 0 and 9, got 99."),
    # Texts
    "carya.Tfidf().fit('one text')": (
        InputError,
        "texts must be a list of strings, got a single str. Pass [text] for one text.",
    ),
    "carya.Tfidf().fit([1, 2])": (InputError, "Text 0 must be a string, got int."),
    "carya.Tfidf().fit([])": (InputError, "texts is empty. At least one text is required."),
    "carya.Tfidf().transform(TEXTS)": (NotFittedError, "This Tfidf is not fitted yet. Call fit first."),
    "carya.TextRanker().fit(X, LABELS)": (
        InputError,
        "texts must be a list, tuple, iterator, one-dimensional array or column of strings, got csr_array.",
    ),
    "carya.TextRanker().fit(TEXTS, LABELS[:50])": (
        InputError,
        "texts and labels must have the same length, got 120 and 50.",
    ),
    "carya.TextRanker().fit(TEXTS, ['a', None] * 60)": (
        InputError,
        "labels[1] is missing (None). Remove rows with missing labels or fill in the labels.",
    ),
    "carya.TextRanker().fit(TEXTS, [[0.5]] * 120)": (
        InputError,
        "labels[0] must contain only strings or integers, got 0.5.",
    ),
    "carya.TextRanker().fit(TEXTS, [['']] * 120)": (
        InputError,
        "labels[0] contains an empty string, which is not a valid label.",
    ),
    "carya.TextRanker().fit(TEXTS, [[]] * 120)": (
        InputError,
        "No text has a label. At least one label is required.",
    ),
    "carya.TextRanker().fit(TEXTS, LABELS, names={'zzz': 'Z'})": (
        InputError,
        "names contains none of the labels: its first key is 'zzz', but the first label is 'astronomy'. Use the label "
        "ids as keys.",
    ),
    "r.suggest(['a', 'b'])": (InputError, "text must be a string, got list. Use suggest_all for several texts."),
    "r.suggest_all('planet')": (
        InputError,
        "texts must be a list of strings, got a single str. Pass [text] for one text.",
    ),
    "r.predict(X)": (
        InputError,
        "texts must be a list, tuple, iterator, one-dimensional array or column of strings, got csr_array.",
    ),
    "r.suggest('planet', top_k=0)": (InputError, "top_k must be an integer >= 1, got 0."),
    "r.explain('planet', 'astronomi')": (InputError, "Unknown label 'astronomi'. Did you mean 'astronomy'?"),
    "r.explain('planet', 5)": (InputError, "label must be a string, got 5."),
    "r.calibrate(TEXTS, [['unknown']] * 120)": (
        InputError,
        "labels contains none of the ranker's labels. Calibration requires at least one.",
    ),
    "r.calibrate(TEXTS, LABELS[:3])": (InputError, "texts and labels must have the same length, got 120 and 3."),
    # Files
    "carya.load('missing')": (ModelFormatError, "missing is not a Carya model: there is no such folder."),
    "carya.load('texts.txt')": (ModelFormatError, "texts.txt is not a Carya model: it is a file, not a folder."),
    "carya.load('future')": (
        ModelFormatError,
        "future has format 3, but this version of Carya reads formats up to 2. Upgrade Carya.",
    ),
    "m.save('texts.txt')": (SaveError, "texts.txt exists and is not a folder. Choose a different path."),
    "m.save('foreign')": (
        SaveError,
        "foreign contains files that are not part of a Carya model. It was not modified. Choose a different path.",
    ),
    "open_data('missing.jsonl')": (InputError, "missing.jsonl: No such file or directory."),
    "open_data('data.jsonl', part='tset')": (ParameterError, "part must be one of train, test, dev, got 'tset'."),
    "list(open_data('data.parquet'))": (
        MissingExtraError,
        "data.parquet requires pyarrow. Install it with: pip install 'carya[arrow]'",
    ),
    "write_data('x.jsonl', [('a', ['b'])])": (
        InputError,
        "data must be a Corpus or Matrices, got list. Convert a list with Corpus.of.",
    ),
    "Corpus.of(['just a text'])": (
        InputError,
        "examples[0] must be a pair of a text and a list of labels, got 'just a text'.",
    ),
    "Corpus.of([('a text', 'label')])": (
        InputError,
        "examples[0] must be a pair of a text and a list of labels, got ('a text', 'label').",
    ),
    "make_world(-1, 5)": (ParameterError, "n_rows must be an integer >= 1, got -1."),
    # Metrics
    "carya.metrics.precision(Y[:5], m.predict(X))": (
        InputError,
        "Y_true and S must have the same shape, got (5, 10) and (100, 10).",
    ),
    "carya.metrics.precision(Y, m.predict(X), k=0)": (InputError, "k must be an integer >= 1, got 0."),
    "carya.metrics.scorer('makro-F1@5')": (
        ParameterError,
        "Unknown metric 'makro-F1@5'. Did you mean 'macro-F1@5'?",
    ),
    "carya.metrics.f1(Y, m.predict(X), average='weighted')": (
        ParameterError,
        "average must be one of 'samples', 'micro', 'macro', got 'weighted'.",
    ),
}


@pytest.mark.parametrize(
    ("expression", "error", "message"), [(call, *raised) for call, raised in CALLS.items()], ids=list(CALLS)
)
def test_in_python(
    expression: str,
    error: type[CaryaError],
    message: str,
    in_folder: Path,
    model: carya.XRLinear,
    ranker: carya.TextRanker,
) -> None:
    names: dict[str, Any] = {"m": model, "r": ranker, **globals()}
    call: Callable[[], object] = lambda: eval(expression, names)  # noqa: E731
    with pytest.raises(error) as raised:
        call()
    assert type(raised.value) is error
    assert str(raised.value) == message


def test_labels_that_occur_only_once_cause_a_warning(
    in_folder: Path, tmp_path: Path, capfd: Any, monkeypatch: Any
) -> None:
    rows = [
        f"{text},{'|'.join(names)}|n{number}" for number, (text, names) in enumerate(zip(TEXTS, LABELS, strict=True))
    ]
    (tmp_path / "data.csv").write_text("text,labels\n" + "\n".join(rows) + "\n")
    for options, expected in (
        (
            [],
            "carya: 120 of 120 labels occur only once, so little can be learned about them. If several labels are "
            "read as one, pass --label-separator.\n",
        ),
        (["--label-separator", "|"], ""),
    ):
        out = tmp_path / f"model{len(options)}"
        monkeypatch.setattr(
            sys, "argv", ["carya", "train", str(tmp_path / "data.csv"), "-o", str(out), "--quiet", *options]
        )
        with pytest.raises(SystemExit) as exited:
            main()
        assert (exited.value.code or 0, capfd.readouterr().err) == (0, expected)
