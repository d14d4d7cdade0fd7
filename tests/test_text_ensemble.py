"""Tests for ensembles of text models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import carya
from carya.errors import InputError, ModelFormatError, NotFittedError, ParameterError
from carya.text.explore.explorer import Explorer

from topics import corpus

TEXTS, LABELS = corpus(200)
TEXT = "the telescope shows a planet and its moon"


def words(**parameters: Any) -> carya.TextRanker:
    return carya.TextRanker(carya.Tfidf(min_df=1, n_jobs=1), carya.XRLinear(max_leaf_size=8, n_jobs=1, **parameters))


def characters() -> carya.TextRanker:
    tfidf = carya.Tfidf(analyzer="char_wb", ngram_range=(2, 3), min_df=1, n_jobs=1)
    return carya.TextRanker(tfidf, carya.XRLinear(max_depth=1, n_jobs=1))


@pytest.fixture(scope="module")
def ensemble() -> carya.TextEnsemble:
    return carya.TextEnsemble([words(), characters()], weights=[3, 1], pool_size=100).fit(TEXTS, LABELS)


def run(*arguments: str) -> Result:
    from carya.cli.app import app

    return CliRunner().invoke(app, arguments)


def test_scores_are_the_weighted_mean(ensemble: carya.TextEnsemble) -> None:
    first, second = (member.predict(TEXTS[:20], top_k=100, beam_width=100).toarray() for member in ensemble.members_)
    S = ensemble.predict(TEXTS[:20], top_k=100, beam_width=100)
    assert np.allclose(S.toarray(), (3 * first + second) / 4, atol=1e-6)
    pairs = np.ones((2, len(ensemble.labels_)))
    assert np.allclose(ensemble.predict_selected(TEXTS[:2], pairs).toarray(), S.toarray()[:2], atol=1e-6)


def test_learned_weights_prefer_the_better_member() -> None:
    rng = np.random.default_rng(0)
    useless = carya.TextRanker(carya.Tfidf(min_df=1, max_df=1, n_jobs=1), carya.XRLinear(n_jobs=1))
    texts = [f"{text} unique{rng.integers(10**9)}" for text in TEXTS]  # the second member uses only the unique words
    learned = carya.TextEnsemble([words(), useless], weights="learned", validation_fraction=0.3).fit(texts, LABELS)
    assert learned.weights_[0] >= learned.weights_[1]
    assert learned.score(TEXTS, LABELS) > 0.9
    assert learned.clone().weights == "learned"


def test_fitted_members_can_be_combined(ensemble: carya.TextEnsemble, tmp_path: Path) -> None:
    combined = carya.TextEnsemble.from_members(ensemble.members_, weights=[3, 1], pool_size=100)
    expected = ensemble.suggest(TEXT)
    assert combined.suggest(TEXT) == expected
    combined.save(tmp_path / "model")
    assert carya.load(tmp_path / "model").suggest(TEXT) == expected
    other = words().fit(TEXTS[:50], [["a"]] * 25 + [["b"]] * 25)
    with pytest.raises(InputError, match=r"Members 0 and 1 have different labels"):
        carya.TextEnsemble.from_members([ensemble.members_[0], other])
    with pytest.raises(NotFittedError, match="This TextRanker is not fitted yet"):
        carya.TextEnsemble.from_members([words()])
    with pytest.raises(ParameterError, match="weights='learned' requires fit"):
        carya.TextEnsemble.from_members(ensemble.members_, weights="learned")


def test_text_models_and_feature_models_are_not_mixed() -> None:
    with pytest.raises(
        ParameterError, match=r"members contains XRLinear, which accepts feature matrices, .* TextRanker\("
    ):
        carya.TextEnsemble([words(), carya.XRLinear()]).fit(TEXTS, LABELS)
    with pytest.raises(ParameterError, match=r"members contains TextRanker, .* Use carya\.TextEnsemble"):
        carya.Ensemble([carya.XRLinear(), words()]).check_parameters()
    with pytest.raises(ParameterError, match="members must be a non-empty list of text models"):
        carya.TextEnsemble(words()).fit(TEXTS, LABELS)
    with pytest.raises(ParameterError, match=r"weights must be 2 non-negative numbers that are not all 0, got \[1\]"):
        carya.TextEnsemble([words(), words()], weights=[1]).fit(TEXTS, LABELS)
    with pytest.raises(ParameterError, match=r"branching must be an integer >= 2, got 0"):
        carya.TextEnsemble([words(branching=0)]).fit(TEXTS, LABELS)
    reranked = carya.TextRanker(None, carya.Reranked())
    with pytest.raises(ParameterError, match="combine='mean' cannot be used with members whose scores are logarithms"):
        carya.TextEnsemble([words(), reranked]).fit(TEXTS, LABELS)


def test_invalid_training_data_is_rejected() -> None:
    model = carya.TextEnsemble([words()])
    with pytest.raises(InputError, match=r"texts must be a list of strings, got a single str\. Pass \[text\]"):
        model.fit("a text", LABELS)
    with pytest.raises(InputError, match="must have the same length, got 200 and 199"):
        model.fit(TEXTS, LABELS[1:])
    with pytest.raises(InputError, match="No text has a label"):
        model.fit(TEXTS, [[] for _ in TEXTS])
    with pytest.raises(InputError, match="requires at least 2 texts, got 1"):
        carya.TextEnsemble([words()], weights="learned").fit(["a"], [["b"]])


def test_names_and_calibration_are_saved(tmp_path: Path) -> None:
    model = carya.TextEnsemble([words(), characters()]).fit(TEXTS, LABELS, names={"chess": "Chess!"})
    model.calibrate(*corpus(100, seed=1)).save(tmp_path / "model")
    loaded = carya.load(tmp_path / "model")
    assert loaded.label_set_.number("Chess!") == loaded.label_set_.number("chess")
    assert model.calibration_ is not None
    assert np.array_equal(loaded.calibration_.probabilities, model.calibration_.probabilities)
    (result,) = Explorer(loaded).search(TEXT, top_k=1).labels
    assert result.probability is not None


def test_explorer_shows_the_trees_of_all_members(ensemble: carya.TextEnsemble) -> None:
    explorer = Explorer(ensemble)
    assert len(ensemble.trees_) == 2
    for tree, member in enumerate(ensemble.members_):
        trace = explorer.search(TEXT, top_k=3, tree=tree)
        assert [row.label.label for row in trace.labels] == [best.label for best in ensemble.suggest(TEXT, top_k=3)]
        assert [row.label.label for row in trace.reached] == [best.label for best in member.suggest(TEXT, top_k=3)]
        assert explorer.explain(TEXT, "astronomy", tree=tree)["score"] == member.explain(TEXT, "astronomy").score
        spans = sorted((term.begin, term.end) for term in member.vectorizers_[0].terms_in(TEXT))
        assert trace.known_spans[0][0] == spans[0][0]
    with pytest.raises(InputError, match=r"Combined scores of TextEnsemble models .* tree from 0 to 1"):
        ensemble.explain(TEXT, "astronomy")


@pytest.mark.parametrize("combine", ["mean", "rank", "round_robin"])
def test_ranking_within_labels(combine: str, ensemble: carya.TextEnsemble) -> None:
    model = carya.TextEnsemble.from_members(ensemble.members_, combine=combine)
    labels = ["chess", "astronomy", "astronomy/planet"]
    suggestions = model.suggest(TEXT, top_k=2, labels=labels)
    assert {suggestion.label for suggestion in suggestions} == {"astronomy", "astronomy/planet"}
    S = model.predict([TEXT, "unknown-words-only"], top_k=2, labels=labels)
    assert [model.labels_[label] for label in S.indices[:2]] == [suggestion.label for suggestion in suggestions]
    assert S.shape == (2, len(model.labels_))
    numbers = [model.label_set_.number(label) for label in labels]
    assert model.rank_texts([TEXT], top_k=2, labels=numbers) == [
        [(model.label_set_.number(label), score) for label, score, *_ in suggestions]
    ]
    with pytest.raises(InputError, match="labels must be a list of strings, got 'chess'"):
        model.suggest(TEXT, labels="chess")


def test_ensembles_can_be_nested_and_served(ensemble: carya.TextEnsemble, tmp_path: Path) -> None:
    from carya.serve.app import create_app
    from carya.serve.settings import ServerSettings

    from serving import Client

    nested = carya.TextEnsemble.from_members([ensemble, ensemble.members_[0]], combine="rank")
    nested.save(tmp_path / "nested")
    with Client(create_app({"m": tmp_path / "nested"}, ServerSettings(log_level="error"))) as client:
        (result,) = client.post("/v1/suggest", {"text": TEXT, "top_k": 4}).json()["results"]
        info = client.get("/v1/model").json()
        filtered = client.post("/v1/suggest", {"text": TEXT, "labels": {"allowed": ["chess", "cooking"]}}).json()
    assert [best["label"] for best in result["suggestions"]] == [best.label for best in nested.suggest(TEXT, top_k=4)]
    assert (info["kind"], info["n_trees"]) == ("TextEnsemble", 3)
    assert {best["label"] for best in filtered["results"][0]["suggestions"]} <= {"chess", "cooking"}


def test_commands(ensemble: carya.TextEnsemble, tmp_path: Path) -> None:
    ensemble.save(tmp_path / "model")
    lines = [json.dumps({"text": text, "labels": labels}) for text, labels in zip(TEXTS, LABELS, strict=True)]
    (tmp_path / "data.jsonl").write_text("\n".join(lines))
    result = run("evaluate", str(tmp_path / "model"), str(tmp_path / "data.jsonl"), "--json")
    assert json.loads(result.stdout)["P@1"] > 0.9
    result = run("inspect", str(tmp_path / "model"), "--json")
    assert [member["weight"] for member in json.loads(result.stdout)["text_members"]] == [3, 1]
    result = run("inspect", str(tmp_path / "model"))
    assert "member 2: XRLinear, weight 1" in result.stdout, result.output
    assert run("explain", str(tmp_path / "model"), TEXT, "--tree", "2").exit_code == 0


def test_forged_models_are_rejected(ensemble: carya.TextEnsemble) -> None:
    from dataclasses import replace

    saved = ensemble.to_saved()
    changes: list[dict[str, Any]] = [
        {"kinds": ["text-ranker"]},
        {"kinds": ["text-ranker", "xr-linear"]},
        {"weights": [1]},
        {"weights": [-1, 2]},
        {"members": [{}, {}]},
        {"combine": "best"},
    ]
    for change in changes:
        with pytest.raises(ModelFormatError):
            carya.TextEnsemble.from_saved(replace(saved, parameters=saved.parameters | change))
    assert carya.TextEnsemble.from_saved(saved).suggest(TEXT) == ensemble.suggest(TEXT)


@pytest.fixture(scope="module")
def encoders(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    pytest.importorskip("transformers")
    import torch

    import tiny_encoders

    torch.set_num_threads(1)
    names = ("bert", "distilbert", "roberta")
    return [str(tiny_encoders.save_encoder(name, tmp_path_factory.mktemp(name))) for name in names]


@pytest.mark.transformer
class TestRecipes:
    """Ensembles of transformer models with tiny encoders."""

    @pytest.mark.parametrize(("preset", "n_members"), [("xr-transformer", 3), ("x-transformer", 4)])
    def test_one_command_trains_and_saves_an_ensemble(
        self, preset: str, n_members: int, encoders: list[str], tmp_path: Path
    ) -> None:
        import tiny_encoders

        texts, labels = tiny_encoders.make_corpus(150)
        lines = [json.dumps({"text": text, "labels": row}) for text, row in zip(texts, labels, strict=True)]
        (tmp_path / "data.jsonl").write_text("\n".join(lines))
        data, out = str(tmp_path / "data.jsonl"), str(tmp_path / "model")
        flags = ["--epochs", "1", "--max-length", "32", "--min-df", "1", "--no-refit", "--matcher-leaf-size", "6"]
        flags += ["--batch-tokens", "256", "--n-jobs", "1", "--max-leaf-size", "8", "--pooling", "mean"]
        if preset == "x-transformer":
            encoders = encoders[:2]
            flags += ["--trees", "2"]
        flags += ["--checkpoint-dir", str(tmp_path / "checkpoints")]
        result = run("train", data, "-o", out, "--preset", preset, "--encoders", ",".join(encoders), *flags, "--json")
        assert result.exit_code == 0, result.output
        printed = json.loads(result.stdout[result.stdout.index("{") :])
        assert (printed["kind"], printed["members"]) == ("text-ensemble", n_members)
        assert len(list((tmp_path / "checkpoints").iterdir())) == n_members
        model = carya.load(out)
        assert [type(member).__name__ for member in model.members_] == [
            {"xr-transformer": "XRTransformer", "x-transformer": "XTransformer"}[preset]
        ] * n_members
        assert len({(member.encoder, member.seed) for member in model.members_}) == n_members
        assert all((Path(out) / "members" / str(number) / "encoder").is_dir() for number in range(n_members))
        assert model.score(texts, labels) > 0.7
        assert not any(member.verbose for member in model.members_)
        model.save(out)
        assert carya.load(out).suggest(texts[0]) == model.suggest(texts[0])

    def test_invalid_options(self, encoders: list[str], tmp_path: Path) -> None:
        (tmp_path / "data.jsonl").write_text('{"text": "a", "labels": ["b"]}\n')
        command = ("train", str(tmp_path / "data.jsonl"), "-o", str(tmp_path / "model"))
        for flags, message in (
            (["--encoders", "a,b"], "--encoders requires --preset"),
            (["--preset", "x-transformer", "--encoder", "a"], "Pass its encoders with --encoders"),
            (["--preset", "x-transformer", "--encoders", "a,,b"], "must be a list of names separated by commas"),
            (["--preset", "x-transformer", "--model", "xr-transformer"], "requires --model x-transformer"),
        ):
            assert message in str(run(*command, *flags).exception)
        with pytest.raises(ParameterError, match=r"Use carya\.XTransformer\.recipe"):
            carya.preset("x-transformer")
        with pytest.raises(ParameterError, match="encoders must be a non-empty list of strings"):
            carya.XTransformer.recipe("bert")

    def test_recipes_of_the_paper(self) -> None:
        ensemble = carya.XTransformer.recipe(seed=5, epochs=3)
        assert [member.seed for member in ensemble.members] == [5, 6, 7] * 3
        assert len({member.encoder for member in ensemble.members}) == 3
        assert {member.epochs for member in ensemble.members} == {3}
