"""Tests for the C interface, using example programs in C and Go and a program that passes invalid arguments."""

from __future__ import annotations

import os
import shutil
import subprocess
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import carya
from carya.c_library import compiler_flags
from carya.data import SyntheticData

from c_programs import CC, compile_program, run
from forging import forge

TESTS = Path(__file__).parent
pytestmark = pytest.mark.skipif(CC is None, reason="requires a C compiler")


@pytest.fixture(scope="module")
def rank_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Path of the compiled example program for features."""
    return compile_program(TESTS.parent / "examples" / "rank.c", tmp_path_factory.mktemp("example"))


def test_example_ranks_like_python(world: SyntheticData, saved_model: Path, rank_program: Path) -> None:
    model = carya.load(saved_model)
    rows = [world.X[[row]] for row in range(40)]
    queries = "".join(
        " ".join(f"{i}:{v!r}" for i, v in zip(row.indices.tolist(), row.data.tolist(), strict=True)) + "\n"
        for row in rows
    )
    process = run(rank_program, saved_model, queries)
    assert process.returncode == 0
    for row, line in zip(rows, process.stdout.splitlines(), strict=True):
        labels, scores = model.rank(row, top_k=5)
        pairs = [pair.split(":") for pair in line.split()]
        assert [int(label) for label, _ in pairs] == labels.tolist()
        assert [float(score) for _, score in pairs] == pytest.approx(scores.tolist(), rel=1e-5)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("5:1 3:1\n", "features must be strictly increasing"),
        (f"{10**6}:1\n", "less than carya_sparse_features(model)"),
        ("3:nan\n", "values and dense must be finite."),
    ],
)
def test_invalid_queries_are_errors(saved_model: Path, rank_program: Path, query: str, message: str) -> None:
    process = run(rank_program, saved_model, query)
    assert process.returncode == 1
    assert message in process.stderr


def test_folder_without_a_model_is_an_error(tmp_path: Path, rank_program: Path) -> None:
    process = run(rank_program, tmp_path)
    assert process.returncode == 1
    assert process.stderr == f"{tmp_path} is not a Carya model: manifest.json is missing.\n"


def test_model_of_a_different_kind_is_an_error(world: SyntheticData, tmp_path: Path, rank_program: Path) -> None:
    carya.Ensemble(carya.XRLinear(max_depth=1), n_trees=2).fit(world.X[:100], world.Y[:100]).save(tmp_path / "model")
    process = run(rank_program, tmp_path / "model")
    assert process.returncode == 1
    assert "is a model of kind 'ensemble'. The C interface supports XRLinear models" in process.stderr


TEXTS = [
    "a fast web server",
    "a small mail server",
    "ein schneller Server für Ärger",
    "किताब और पढ़ना",
    "機器學習入門",
    "web mail",
    "বাংলা ভাষার বই",
    "اللُّغَةُ العَرَبِيَّة",
    "เรียนภาษาไทย",
    "日本語のプログラミング言語 Python3",
    "프로그래밍 언어",
    "ΟΔΥΣΣΕΥΣ στην ΙΘΑΚΗ",
]
LABELS = [
    ["net", "web"], ["net", "mail"], ["ärger"], ["hindi"], ["chinese"], ["web", "mail"],
    ["bengali"], ["arabic"], ["thai"], ["japanese"], ["korean"], ["greek"],
]  # fmt: skip
#: Vectorizer parameters that affect tokenization or term weighting.
VECTORIZERS: list[dict[str, Any]] = [
    {},
    {"analyzer": "auto"},
    {"analyzer": ["word", "char_wb"], "ngram_range": [(1, 2), (2, 4)]},
    {"analyzer": ["char_wb", "char", "word"], "ngram_range": [(4, 4), (1, 1), (1, 3)], "n_buckets": 4096},
    {"ngram_range": (3, 4)},
    {"analyzer": "char", "ngram_range": (1, 3), "strip_accents": "unicode"},
    {"strip_accents": "ascii", "lowercase": False, "use_idf": False, "norm": None},
    {"n_buckets": 512, "binary": True, "norm": "l1"},
    {"stop_words": ["a", "für", "und \U0001f600"], "min_word_length": 1, "segmenter": None},
    {"tokenizer": "sklearn", "sublinear_tf": False},
]
#: Queries in several languages, including texts with decomposed accents, an empty text and one without known terms.
QUERIES = [
    "another web server", "A\u0308rger mit dem Server", "पढ़ना", "學習", "", "xyzzy", "WEB 😀 Mail",
    "বই", "العَرَبِيَّة", "ภาษาง่าย", "Python言語、プロク\u3099ラミンク\u3099",
    "언어", unicodedata.normalize("NFD", "프로그래밍"),
    "soft\u00adware se\u200drver", "Οδυσσεύς", "I\u0307THAKİ \u0301 web\u0334\u0301 \ufdd0",
]  # fmt: skip


@pytest.fixture(scope="module")
def rank_text_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Path of the compiled example program for texts."""
    return compile_program(TESTS.parent / "examples" / "rank_text.c", tmp_path_factory.mktemp("example"))


def fit_text_ranker(**settings: Any) -> carya.TextRanker:
    """Return a text ranker with named labels, trained on texts in several languages."""
    model = carya.XRLinear(max_leaf_size=2, branching=2)
    ranker = carya.TextRanker(carya.Tfidf(min_df=1, **settings), model)
    return ranker.fit(TEXTS * 4, LABELS * 4, names={"net": "networks", "ärger": "Ärger"})


def held_out_texts() -> tuple[list[str], list[list[str]]]:
    """Return texts that are not training texts: pairs of concatenated training texts, with the labels of both."""
    pairs = [(first, second) for first in range(len(TEXTS)) for second in range(first)] * 20
    texts = [f"{TEXTS[first]} {TEXTS[second]}" for first, second in pairs]
    return texts, [[*LABELS[first], *LABELS[second]] for first, second in pairs]


def check_program(program: Path, ranker: carya.TextRanker, folder: Path, queries: list[str]) -> None:
    """Check that a program prints the suggestions of the ranker, with probabilities if the ranker is calibrated."""
    process = run(program, folder, "".join(query + "\n" for query in queries))
    assert process.returncode == 0, process.stderr
    rankings = ranker.rank_texts(queries, top_k=5)
    for ranking, line in zip(rankings, process.stdout.split("\n")[:-1], strict=True):
        scores = [score for _, score in ranking]
        fields = [field.split(":") for field in line.split("\t") if field]
        assert [field[0] for field in fields] == [ranker.labels_[label] for label, _ in ranking]
        assert [float(field[1]) for field in fields] == pytest.approx(scores, rel=1e-5)
        if ranker.calibration_ is not None:
            probabilities = ranker.calibration_(scores).tolist()
            assert [float(field[2]) for field in fields] == pytest.approx(probabilities, rel=1e-5)
    assert any(rankings)


@pytest.mark.filterwarnings("ignore::carya.errors.FewTermsWarning")
@pytest.mark.parametrize("settings", VECTORIZERS, ids=str)
def test_texts_are_ranked_like_in_python(settings: dict[str, Any], tmp_path: Path, rank_text_program: Path) -> None:
    ranker = fit_text_ranker(**settings)
    ranker.save(tmp_path / "model")
    check_program(rank_text_program, ranker, tmp_path / "model", QUERIES)


def test_scripts_and_normal_forms_have_known_terms(tmp_path: Path, rank_text_program: Path) -> None:
    """In both NFC and NFD, the top label of each training text is correct, so the other tests are not vacuous."""
    ranker = fit_text_ranker()
    ranker.save(tmp_path / "model")
    for form in ("NFC", "NFD"):
        queries = [unicodedata.normalize(form, text) for text in TEXTS]
        process = run(rank_text_program, tmp_path / "model", "".join(query + "\n" for query in queries))
        best = [line.split(":")[0] for line in process.stdout.splitlines()]
        assert all(label in labels for label, labels in zip(best, LABELS, strict=True)), best


@pytest.mark.parametrize("settings", [{}, {"analyzer": "auto"}, {"analyzer": "char"}], ids=str)
def test_invalid_utf8_is_ignored(settings: dict[str, Any], tmp_path: Path, rank_text_program: Path) -> None:
    ranker = fit_text_ranker(**settings)
    ranker.save(tmp_path / "model")
    valid, invalid = "web . server . 機器 .".encode(), "web \udcff server \udce6\udca9 機器 \udcf4"
    outputs = [
        subprocess.run(
            [rank_text_program, tmp_path / "model"], input=text + b"\n", capture_output=True, check=True
        ).stdout
        for text in (valid, invalid.encode("utf-8", "surrogateescape"))
    ]
    assert outputs[0] == outputs[1] != b"\n"


def test_subsets_of_labels_are_ranked_like_in_python(tmp_path: Path, rank_text_program: Path) -> None:
    ranker = fit_text_ranker().subset(["mail", "ärger", "thai"])
    ranker.save(tmp_path / "model")
    check_program(rank_text_program, ranker, tmp_path / "model", QUERIES)


def test_probabilities_of_calibrated_models(tmp_path: Path, rank_text_program: Path) -> None:
    ranker = fit_text_ranker()
    ranker.calibrate(*held_out_texts())
    ranker.save(tmp_path / "model")
    check_program(rank_text_program, ranker, tmp_path / "model", QUERIES)


@pytest.mark.parametrize("folder", sorted((TESTS / "golden" / "model-kinds").glob("text*")), ids=lambda path: path.name)
def test_text_models_of_earlier_versions(folder: Path, rank_text_program: Path) -> None:
    ranker = carya.load(folder)
    assert isinstance(ranker, carya.TextRanker)
    if type(ranker.model_) is carya.XRLinear:
        terms = ranker.vectorizer_.get_feature_names_out().tolist()
        check_program(rank_text_program, ranker, folder, [*QUERIES, " ".join(terms[::7])])
    else:
        process = run(rank_text_program, folder)
        assert (process.returncode, process.stdout) == (1, "")
        assert "The C interface supports XRLinear models, and TextRanker models that contain one." in process.stderr


@pytest.mark.parametrize(
    ("settings", "package", "message"),
    [
        ({"stemmer": "english"}, "snowballstemmer", "The model was trained with a stemmer, which requires Python."),
        ({"segmenter": "icu"}, "icu4py", "The model was trained with segmenter='icu', which requires Python."),
    ],
)
def test_models_that_require_python_are_rejected(
    settings: dict[str, Any], package: str, message: str, tmp_path: Path, rank_text_program: Path
) -> None:
    pytest.importorskip(package)
    fit_text_ranker(**settings).save(tmp_path / "model")
    process = run(rank_text_program, tmp_path / "model", "web\n")
    assert (process.returncode, process.stdout) == (1, "")
    assert message in process.stderr


def test_text_functions_reject_models_over_features(saved_model: Path, rank_text_program: Path) -> None:
    process = run(rank_text_program, saved_model, "web\n")
    assert (process.returncode, process.stdout) == (1, "")
    assert process.stderr == "The model was trained on features. Use carya_rank.\n"


def test_features_of_a_text_model_can_be_ranked(tmp_path: Path, rank_program: Path) -> None:
    ranker = fit_text_ranker()
    ranker.save(tmp_path / "model")
    row = ranker.vectorizer_.transform([TEXTS[0]])
    query = " ".join(f"{i}:{v!r}" for i, v in zip(row.indices.tolist(), row.data.tolist(), strict=True))
    process = run(rank_program, tmp_path / "model", query + "\n")
    labels, _ = ranker.model_.rank(row, top_k=5)
    assert [int(pair.split(":")[0]) for pair in process.stdout.split()] == labels.tolist()


def test_forged_text_models_are_rejected_or_harmless(tmp_path: Path, rank_text_program: Path) -> None:
    """A forged vocabulary, label list or calibration results in an error message or a ranking, never in a crash."""
    ranker = fit_text_ranker()
    ranker.calibrate(*held_out_texts())
    ranker.save(tmp_path / "model")
    rejected = accepted = 0
    for seed in range(150):
        forge(tmp_path / "model", tmp_path / f"forged-{seed}", seed)
        process = run(rank_text_program, tmp_path / f"forged-{seed}", "\n".join(QUERIES) + "\n")
        assert process.returncode in (0, 1), (seed, process.returncode)
        rejected += process.returncode == 1
        accepted += process.returncode == 0
    assert min(rejected, accepted) > 10


def test_go_example_ranks_like_python(tmp_path: Path) -> None:
    go = shutil.which("go")
    if go is None:
        pytest.skip("requires Go")
    flags = " ".join(compiler_flags())
    caches = {"GOCACHE": str(tmp_path / "cache"), "GOFLAGS": "-mod=mod", "GOPATH": str(tmp_path / "path")}
    environment = os.environ | caches | {"CGO_CFLAGS": flags, "CGO_LDFLAGS": flags, "CGO_ENABLED": "1"}
    program = tmp_path / "rank"
    command = [go, "build", "-o", str(program)]
    subprocess.run(command, cwd=TESTS.parent / "examples" / "go", env=environment, check=True)
    ranker = fit_text_ranker()
    ranker.save(tmp_path / "model")
    check_program(program, ranker, tmp_path / "model", QUERIES)
    assert run(program, tmp_path, "").stderr == f"{tmp_path} is not a Carya model: manifest.json is missing.\n"


def test_damaged_model_is_an_error(saved_model: Path, tmp_path: Path, rank_program: Path) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(saved_model, damaged)
    raw = bytearray((damaged / "arrays.bin").read_bytes())
    raw[len(raw) // 2] ^= 1
    (damaged / "arrays.bin").write_bytes(bytes(raw))
    process = run(rank_program, damaged)
    assert process.returncode == 1
    assert "arrays.bin is damaged: the checksum of the block at byte" in process.stderr


def test_forged_models_are_rejected_or_harmless(saved_model: Path, tmp_path: Path, rank_program: Path) -> None:
    """A forged model results in an error message or a ranking, never in a crash."""
    query = " ".join(f"{feature}:0.1" for feature in range(0, 60, 3)) + "\n"
    original = (saved_model / "arrays.bin").read_bytes()
    rejected = accepted = 0
    for seed in range(60):
        forged = tmp_path / f"forged-{seed}"
        forge(saved_model, forged, seed)
        if (forged / "arrays.bin").read_bytes() == original:
            continue
        process = run(rank_program, forged, query)
        assert process.returncode in (0, 1), (seed, process.returncode)
        assert (process.returncode == 1) == bool(process.stderr)
        rejected += process.returncode == 1
        accepted += process.returncode == 0
    assert rejected > 0
    assert accepted > 0
    assert rejected + accepted >= 50  # few forged models equal the original


def test_invalid_arguments_and_concurrent_threads(world: SyntheticData, tmp_path: Path) -> None:
    """Run tests/native/misuse.c, which passes all kinds of invalid arguments and ranks in several threads."""
    rng = np.random.default_rng(0)
    model = carya.XRLinear(max_leaf_size=10, branching=4).fit((world.X, rng.random((world.X.shape[0], 3))), world.Y)
    model.save(tmp_path / "model")
    process = run(compile_program(TESTS / "native" / "misuse.c", tmp_path), tmp_path / "model")
    assert process.returncode == 0, process.stdout + process.stderr
