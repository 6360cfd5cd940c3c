"""The pure brain: observations in, decisions with reasons out.

Knows nothing of processes, clocks, files or mtpd. Imports only the standard
library's mathematics.
"""
