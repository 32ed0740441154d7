"""Your own endpoint, predicted: `python -m bench.calibrate --base-url URL --model NAME`.

`probe.py` asks the endpoint, within a cap that counts what goes over the wire; `fit.py`, with `attempts.py` and
`limits.py`, makes a latency model of what was seen, without IO; `predict.py` judges every size in every mode against
that model, in virtual time; `verify.py` judges on the endpoint itself; `report.py` and `plot.py` show all of it. The
samples are the benchmarks' own: it says how your endpoint bears such prompts, not yours.
"""
