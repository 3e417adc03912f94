"""Reports of experiments: text, Markdown, HTML and plots.

`report` makes tables and sections, `document` writes them in a format, and `report_files` writes
the whole report. `real_runs` adds results of experiments with real jobs.
"""
