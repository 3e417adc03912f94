"""Reports of experiments: text, Markdown, HTML and plots."""
