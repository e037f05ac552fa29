"""The report of an experiment: figures, result.json and one page that opens offline."""
