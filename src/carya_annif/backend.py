"""The backend: training, suggestions, hyperparameter optimization and learning from more documents."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import annif.eval
from annif.backend import backend, hyperopt
from annif.exception import ConfigurationException, NotInitializedException, NotSupportedException
from annif.suggestion import SubjectSuggestion, SuggestionBatch

import carya
from carya.core.atomic import atomic_file
from carya.errors import CaryaError

_FEATURES: dict[str, dict[str, Any]] = {
    "word": {"analyzer": "word", "ngram_range": (1, 2)},
    "char_wb": {"analyzer": "char_wb", "ngram_range": (3, 5)},
    "word+char_wb": {"analyzer": ["word", "char_wb"], "ngram_range": [(1, 2), (4, 4)]},
}


class CaryaObjective(hyperopt.HPObjective):
    """The metric of one combination of parameters on the validation documents."""

    @classmethod
    def objective(cls, trial: Any, args: dict[str, Any]) -> float:
        """Train a model and return the value of the metric."""
        params = dict(args["params"])
        params |= {
            "features": trial.suggest_categorical("features", list(_FEATURES)),
            "min_df": trial.suggest_int("min_df", 1, 3),
            "cost": trial.suggest_float("cost", 0.1, 4.0, log=True),
            "max_leaf_size": trial.suggest_categorical("max_leaf_size", [50, 100, 200, 400]),
        }
        ranker = new_ranker(params, jobs=args["jobs"]).fit(args["texts"], args["labels"], names=args["names"])
        index = args["subject_index"]
        batch = annif.eval.EvaluationBatch(index)
        results = suggest(ranker, args["validation_texts"], int(params["limit"]), index)
        batch.evaluate_many(results, args["gold_subjects"])
        return float(batch.results(metrics=[args["metric"]])[args["metric"]])


class CaryaOptimizer(hyperopt.HyperparameterOptimizer):
    """Hyperparameter optimizer for the training documents that the backend has stored."""

    def _prepare(self, n_jobs: int = 1) -> dict[str, Any]:
        texts, labels = self._backend.load_documents()
        documents = list(self._corpus.documents)
        return {
            "texts": texts,
            "labels": labels,
            "names": self._backend.subject_names(),
            "validation_texts": [document.text for document in documents],
            "gold_subjects": [document.subject_set for document in documents],
            "subject_index": self._backend.project.subjects,
            "metric": self._metric,
            "params": self._backend.params,
            "jobs": 1 if n_jobs != 1 else -1,
        }

    def _postprocess(self, study: Any) -> hyperopt.HPRecommendation:
        best = study.best_params
        lines = [
            f"features={best['features']}",
            f"min_df={best['min_df']}",
            f"cost={best['cost']:.3g}",
            f"max_leaf_size={best['max_leaf_size']}",
        ]
        return hyperopt.HPRecommendation(lines=lines, score=study.best_value)


class CaryaBackend(hyperopt.AnnifHyperoptBackend, backend.AnnifLearningBackend):
    """Annif backend that trains and uses a Carya text model in Annif's process."""

    name = "carya"

    MODEL_FOLDER = "carya-model"
    TRAIN_FILE = "carya-train.jsonl.gz"

    DEFAULT_PARAMETERS: ClassVar[dict[str, Any]] = {
        "model": "trees",
        "features": "word+char_wb",
        "trees": 3,
        "min_df": 1,
        "cost": 0.5,
        "max_leaf_size": 400,
        "stemmer": "none",
        "seed": 0,
    }

    _ranker: Any = None

    def get_hp_optimizer(self, corpus: Any, metric: str) -> CaryaOptimizer:
        """Return the optimizer of `annif hyperopt`."""
        return CaryaOptimizer(self, corpus, metric, CaryaObjective)

    def initialize(self, parallel: bool = False) -> None:
        """Load the model."""
        if self._ranker is None:
            path = Path(self.datadir) / self.MODEL_FOLDER
            if not path.exists():
                raise NotInitializedException(f"model {path} not found", backend_id=self.backend_id)
            try:
                self._ranker = carya.load(path)
            except CaryaError as error:
                raise NotInitializedException(str(error), backend_id=self.backend_id) from error

    def _train(self, corpus: Any, params: dict[str, Any], jobs: int = 0) -> None:
        if corpus != "cached":
            if corpus.is_empty():
                raise NotSupportedException("Cannot train carya project with no documents")
            self._save_documents(self._documents(corpus))
        self._fit(params, jobs, *self.load_documents())

    def _learn(self, corpus: Any, params: dict[str, Any]) -> None:
        texts, labels = self.load_documents()
        rows = [*zip(texts, labels, strict=True), *self._documents(corpus)]
        self.info(f"training with {len(rows)} documents, {len(rows) - len(texts)} of them new")
        self._fit(params, 0, [text for text, _ in rows], [own for _, own in rows])
        self._save_documents(rows)  # only after training, so that a command that failed can be repeated

    def _fit(self, params: dict[str, Any], jobs: int, texts: list[str], labels: list[list[str]]) -> None:
        ranker = new_ranker(params, jobs=jobs or -1)
        try:
            self._ranker = ranker.fit(texts, labels, names=self.subject_names())
        except CaryaError as error:
            raise NotSupportedException(f"Cannot train carya project: {error}") from error
        self._ranker.save(Path(self.datadir) / self.MODEL_FOLDER)

    def _suggest_batch(self, documents: Sequence[Any], params: dict[str, Any]) -> SuggestionBatch:
        results = suggest(
            self._ranker, [document.text for document in documents], int(params["limit"]), self.project.subjects
        )
        return SuggestionBatch.from_sequence(results, self.project.subjects)

    def subject_names(self) -> dict[str, str]:
        """Return the names of all subjects by URI."""
        language = self.project.vocab_lang
        return {
            subject.uri: subject.labels[language]
            for _, subject in self.project.subjects.active
            if language in (subject.labels or {})
        }

    def _documents(self, corpus: Any) -> Iterator[tuple[str, list[str]]]:
        subjects = self.project.subjects
        for document in corpus.documents:
            yield document.text, [subjects[number].uri for number in document.subject_set]

    def _save_documents(self, rows: Iterable[tuple[str, list[str]]]) -> None:
        path = Path(self.datadir) / self.TRAIN_FILE
        with atomic_file(path) as file, gzip.open(file, "wt", encoding="utf-8") as lines:
            for text, labels in rows:
                lines.write(json.dumps({"text": text, "labels": labels}, ensure_ascii=False) + "\n")

    def load_documents(self) -> tuple[list[str], list[list[str]]]:
        """Return the stored texts and subject URIs."""
        path = Path(self.datadir) / self.TRAIN_FILE
        if not path.exists():
            raise NotInitializedException(f"training data {path} not found", backend_id=self.backend_id)
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            rows = [json.loads(line) for line in lines]
        return [row["text"] for row in rows], [row["labels"] for row in rows]


def new_ranker(params: dict[str, Any], *, jobs: int) -> Any:
    """Return the untrained model described by the parameters of a project."""
    features, model, stemmer = params["features"], params["model"], params["stemmer"]
    if features not in _FEATURES:
        raise ConfigurationException(f"features must be one of {', '.join(_FEATURES)}, got '{features}'.")
    try:
        vectorizer = carya.Tfidf(
            **_FEATURES[features], min_df=int(params["min_df"]), stemmer=None if stemmer == "none" else stemmer
        )
        seed = int(params["seed"])
        tree = carya.XRLinear(C=float(params["cost"]), max_leaf_size=int(params["max_leaf_size"]), seed=seed)
        if model == "trees":
            ensemble = carya.Ensemble(tree, n_trees=int(params["trees"])) if int(params["trees"]) > 1 else tree
            ranker = carya.TextRanker(vectorizer, ensemble, n_jobs=jobs)
        elif model == "accurate":
            ranker = carya.TextRanker(None, carya.preset("accurate", seed=seed), n_jobs=jobs)
        else:
            raise ConfigurationException(f"model must be trees or accurate, got '{model}'.")
        ranker.check_parameters()
    except (CaryaError, ValueError) as error:
        raise ConfigurationException(f"Invalid parameter of the carya backend: {error}") from error
    return ranker


def suggest(ranker: Any, texts: list[str], limit: int, subjects: Any) -> list[list[SubjectSuggestion]]:
    """Return the suggestions for each text, with scores between 0 and 1 as in Annif's API.

    The scores of rerankers are on a log scale, so they are exponentiated; Annif discards scores that are not positive.
    """
    results = []
    for ranking in ranker.suggest_all(texts, top_k=limit):
        shift = max([0.0, *(suggestion.score for suggestion in ranking)])
        suggestions = []
        for suggestion in ranking:
            number = subjects.by_uri(suggestion.label, warnings=False)
            score = math.exp(suggestion.score - shift) if ranker.has_log_scores else min(1.0, suggestion.score)
            if number is not None and score > 0:
                suggestions.append(SubjectSuggestion(subject_id=number, score=score))
        results.append(suggestions)
    return results
