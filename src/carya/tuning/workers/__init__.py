"""Workers that run trials: processes on this machine or actors on a Ray cluster."""
