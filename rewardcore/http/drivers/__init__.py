"""Drivers: take, send, settle, gone. What is sent, shared, tried again or given up is the engine's to say.

loop.py drives on an event loop, which loop_thread.py gives it; sync.py is the same with one place; remote.py has one
in another process and passes calls and verdicts on. Opened by modes.py.
"""
