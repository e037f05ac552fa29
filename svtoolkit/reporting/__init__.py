"""The report of an experiment: figures and one page that opens offline."""
