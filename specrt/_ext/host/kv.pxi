# The structs of kv.h from a HostKVLayer and a StepInputs.

cdef extern from "kv.h":
    ctypedef struct KVCache "struct kv_cache":
        void *k
        void *v
        unsigned short *k_scale
        unsigned short *v_scale
        int type, num_heads, dims, row_dims, ring_pages
    ctypedef struct KVStep "struct kv_step":
        const int *positions
        const int *row_seqs
        const int *table
        int table_width
    int KV_F32, KV_F16, KV_Q8_0, _PAGE "PAGE"

cdef dict KV_TYPES = {"f32": KV_F32, "f16": KV_F16, "q8_0": KV_Q8_0}


cdef KVCache cache_struct(layer) except *:
    cdef KVCache c
    c.k = address(layer.k)
    c.v = address(layer.v)
    c.k_scale = <unsigned short *>address(layer.k_scale)
    c.v_scale = <unsigned short *>address(layer.v_scale)
    c.type = KV_TYPES[layer.kv_type]
    c.num_heads = layer.num_heads
    c.dims = layer.head_dim
    c.row_dims = layer.v.shape[3]
    c.ring_pages = layer.ring_pages
    return c


cdef KVStep step_struct(step, layer) except *:
    cdef KVStep s
    table = step.ring_table if layer.ring_pages else step.page_table
    s.positions = <const int *>address(step.positions)
    s.row_seqs = <const int *>address(step.row_seqs)
    s.table = <const int *>address(table)
    s.table_width = table.shape[1]
    return s
