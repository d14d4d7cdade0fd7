"""Open vocabulary: proposals for labels that are not in the label list."""
