"""The nightly job: `python -m bench.nightly --device cpu|cuda` measures what needs a model, and compares it with then.

Three parts, each in a process of its own that may die alone (parts.py starts them, child.py is what they are):

- http (served.py): every HTTP mode against a vLLM server of the night, speed-ups beside their agreement;
- torch (batches.py): the self mode by batch size, its speed, and its memory, predicted beside measured;
- vllm (offline.py): vLLM's engine without a server, and what it sets aside (engine_memory.py).

budget.py says how much fits the time, control.py measures the machine by itself, gpu.py watches for strangers;
running.py makes a night of all that, and measures again what has changed; history.py keeps nights, and compare.py says
what changed since the last clean one. A dirty night is kept, and never becomes a baseline. summary.py is for people.
"""
