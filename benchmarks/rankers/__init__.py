"""One small file for each system whose speed of answering is measured, all with the same four functions.

    train(X, Y, folder, threads)          train a model and save it, with the system's own defaults for one tree
    load(folder, threads)                 open it
    prepare(X, row)                       one query in the form the system likes best; not timed
    one(model, query, top_k, beam)        the labels of one query
    batch(model, X, top_k, beam)          CSR of scores of many, or None if the system has no such call

They run in the environments of their systems, so they need nothing but NumPy and SciPy of any version besides.
"""
