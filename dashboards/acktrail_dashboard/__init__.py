"""Pages, report and terminal output from one set of `templates`; evidence of a run."""
