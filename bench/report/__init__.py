"""The report: `python -m bench.report` makes one page of what was measured, which needs neither a server nor a network.

sources.py reads what the harness leaves behind, newest.py finds the newest value of each metric, computed.py plays what
is exact and quick and was never recorded. tables/ makes tidy rows of them, plots/ draws each, sections.py says which
stands where and in which words, page.py writes the page, palette.py has its colours. Only plots/, sections.py and
picture.py need the extra `page`; nothing here measures on a real clock.
"""
