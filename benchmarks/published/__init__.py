"""The paper's experiments on its six data sets: sources, experiments, tables and figures; see paper.py."""
