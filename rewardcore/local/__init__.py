"""Self-judge: a local model in batches. generator.py says what a generator is, then torch, vLLM and verl say how.

batching.py forms batches and generation.py drives them, both without a model; self_judge.py is the mode. Called by
`open_judge("self", …)` and by whoever makes a generator; calls rubrics, memory and the words.
"""
