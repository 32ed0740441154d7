"""Files: rows in, results out, for runs that may be killed at any moment and go on.

rows.py reads a data file or a hub's data set as a stream; journal.py keeps what is finished; atomic.py writes a file
whole or not at all; json_lines.py is how a line is read and written everywhere here. Called by the commands and by
rejection sampling; none of these knows a judge. judging.py judges a whole file with them: samples.py makes samples of
its rows, summary.py says what became of them.
"""
