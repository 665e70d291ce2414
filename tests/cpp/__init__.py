"""What compiles and runs the kernels in CUDA C++ where there is no device: ``nvrtc`` compiles, ``machines`` run, ``shim.h`` is for g++."""
