"""Serve libpecos in the usual way: scikit-learn's TF-IDF and the model in a FastAPI application with the route
/v1/suggest.

    python benchmarks/serve_libpecos.py DATA FOLDER               train on a text folder and save to FOLDER
    python benchmarks/serve_libpecos.py DATA FOLDER --port 9000   serve the saved model with two workers

Run the script in the environment of libpecos; fastapi and uvicorn must also be installed.
"""

import argparse
import os
import pickle  # scikit-learn vectorizers have no other file format; the file that is read was written by this script
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from sklearn.feature_extraction.text import TfidfVectorizer

from rankers import libpecos

import measure

FOLDER_VARIABLE = "CARYA_BENCHMARK_LIBPECOS"


class SuggestRequest(BaseModel):
    """Request fields that the benchmark uses."""

    text: str | None = None
    texts: list[str] | None = None
    top_k: int = 10


def train(data: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    Y = measure.read(data, "train.labels.npz")
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True, dtype=np.float32)
    X = vectorizer.fit_transform(measure.read_texts(data, "train"))
    X.sort_indices()
    libpecos.fit(X, Y, threads=2).save(str(folder / "model"))
    (folder / "vectorizer").write_bytes(pickle.dumps(vectorizer))


def create_app() -> FastAPI:
    folder = Path(os.environ[FOLDER_VARIABLE])
    vectorizer = pickle.loads((folder / "vectorizer").read_bytes())
    model = libpecos.load(str(folder / "model"), threads=1)
    app = FastAPI()

    @app.post("/v1/suggest", response_model=None)  # responses are not validated
    def suggest(request: SuggestRequest) -> dict[str, Any]:
        texts = request.texts if request.texts is not None else [request.text]
        X = vectorizer.transform(texts)
        X.sort_indices()
        S = libpecos.batch(model, X, top_k=request.top_k)
        rows = [slice(*pair) for pair in zip(S.indptr[:-1], S.indptr[1:], strict=True)]
        return {
            "results": [
                {
                    "suggestions": [
                        {"label": label, "score": score}
                        for label, score in zip(S.indices[row].tolist(), S.data[row].tolist(), strict=True)
                    ]
                }
                for row in rows
            ]
        }

    return app


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--port", type=int)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    if arguments.port is None:
        train(arguments.data, arguments.folder)
        return
    os.environ[FOLDER_VARIABLE] = str(arguments.folder)
    uvicorn.run(
        "serve_libpecos:create_app",
        factory=True,
        port=arguments.port,
        workers=arguments.workers,
        access_log=False,
        log_level="warning",
    )


if __name__ == "__main__":
    main()
