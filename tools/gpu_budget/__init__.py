"""What steps of a 27B model cost a GPU, on paper: bytes, operations, launches, compiled code.

    python -m tools.gpu_budget                           # the tables of docs/gpu-budget.md
    python -m tools.gpu_budget --write docs/gpu-budget.md

Nothing is measured and no GPU is needed: the model's own programs are recorded over a device that
holds nothing, so kernels are counted as they would be launched; NVRTC or nvcc compiles them, and
nvdisasm (``pip install nvidia-cuda-nvdisasm``) lists their instructions.
"""
