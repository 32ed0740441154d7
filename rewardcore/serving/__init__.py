"""Servers of our own: vllm_server.py is the whole life of a vLLM server.

launch.py and log.py decide how it is launched and what its end means; kept.py and keeper.py start a command and let
none of its processes outlive us; port.py says who listens where; signals.py makes a polite kill an exception. Called by
the command line and by users; calls http's Endpoint and the words.
"""
