"""Looking at generation from outside: host reads, times, errors, bytes, and recorded results.

Nothing below this folder imports it.  The modules need only MLX and NumPy; those that need a model import it inside.
"""
