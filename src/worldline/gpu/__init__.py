"""State on a GPU: digested, gathered and coded where it lies. Needs the extra `gpu` (Triton) and, to be of use, a card.

The kernels give the bytes that the CPU's give. Without a card they run under Triton's interpreter (`TRITON_INTERPRET=1`
before the first import), which is how they are compared with the CPU's in every test run, and they are compiled for
cards that are not there. **Unproven** on a real one until `benchmarks/gpu.py` has written its table from one.
"""
