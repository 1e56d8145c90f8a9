"""Experiments: each a question, a run that is watched, and a report."""
