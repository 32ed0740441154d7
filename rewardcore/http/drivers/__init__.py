"""Drivers: take, send, settle, gone. What is sent, shared, tried again or given up is the engine's to say.

caller.py drives in the caller's thread, loop.py on an event loop (loop_thread.py gives it one); remote.py has a loop
driver in another process and passes calls and verdicts on. Opened by modes.py.
"""
