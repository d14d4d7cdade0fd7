"""Adapters for the systems in the latency benchmark: one module per system, all with the same functions.

    train(X, Y, folder, threads)          train and save a model with one tree and the system's default settings
    load(folder, threads)                 load the model
    prepare(X, row)                       convert one query to the system's native format; not timed
    one(model, query, top_k, beam)        return the labels for one query
    batch(model, X, top_k, beam)          return a score matrix, or None if the system has no batch prediction

Each module runs in the environment of its system. Apart from that system, it depends only on NumPy and SciPy and
works with any version of them.
"""
