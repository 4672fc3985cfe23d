"""The rung `host`: on a CPU the device is the host, so frames can be made without MLX, by compiled loops.

A node of MLX's graph costs a CPU some 5 us, and a frame has thousands; here a layer is eight calls of 1 us each. And
the codec decodes in a thread beside: who asks MLX (0.32) for a value while another thread has more than some hundred
operations under way waits for those too, 15 ms a frame.
Float32 on a CPU only; needs Numba.
"""

from .frames import HostFrames, can_walk, host, prepare

__all__ = ["HostFrames", "can_walk", "host", "prepare"]
