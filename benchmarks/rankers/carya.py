"""Carya, with the defaults of libpecos so that both search like models, unless told otherwise."""

from carya import XRLinear
from carya import load as open_model

import measure


def train(X, Y, folder, threads, **settings):
    alike = {"negatives": "teacher", "transform": "l3-hinge"}
    XRLinear(**(alike | settings), n_jobs=threads).fit(X, Y).save(folder)


def load(folder, threads):
    model = open_model(folder)
    model.set_params(n_jobs=threads)
    return model


def prepare(X, row):
    return X[[row]]


def one(model, query, top_k=measure.TOP_K, beam=measure.BEAM_WIDTH):
    return model.rank(query, top_k=top_k, beam_width=beam)[0]


def batch(model, X, top_k=measure.TOP_K, beam=measure.BEAM_WIDTH):
    return model.predict(X, top_k=top_k, beam_width=beam)
