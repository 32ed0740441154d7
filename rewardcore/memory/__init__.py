"""How much memory a batch takes: predicted from a config alone, measured on a GPU, reported as a table and a plot.

Called by the local room (`batch_size="auto"`) and the command line; calls nobody but the words.
"""
