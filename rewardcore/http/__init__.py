"""Judging over HTTP, in three modes (modes.py). A sample's way: request.py, cache.py, engine.py, a driver, a transport,
reading.py, and back.

Without IO: request, reading, pace, knee, chance, retry, timetable, outcomes, engine. With it: cache, drivers/ (take,
send, settle, gone), transports/ (bytes there and back), processes (children). Called by `open_judge`; calls rubrics and
the words.
"""
