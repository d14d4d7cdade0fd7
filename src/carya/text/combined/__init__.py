"""Text models that combine other text models: ensembles and rerankers."""
