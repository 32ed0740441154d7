"""Each plot as Vega-Lite, written with Altair and checked by its schema; the page draws it with Vega, as an SVG.

Vega-Altair, since what it makes is data: it stands in the page as JSON beside its table, is drawn at the width of the
reader's screen, shows its values under the pointer, takes its colours from the style sheet, and comes out as a PNG
without a browser. Its HTML is not used: that repeats all scripts for each chart and knows one scheme. Vega, Vega-Lite
and Vega-Embed stand in the page once, 0.9 MB, from vl-convert, which has them on board: nothing is fetched. matplotlib
draws neither for a phone nor in two schemes.
"""
