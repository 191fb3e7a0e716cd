/* The tile for 64-bit ARM. */
#ifdef __aarch64__
#include <arm_neon.h>

#define V float32x4_t
#define W 4
#define MR 8
#define NV 3
#define SUMS 25
#define LOAD(p) vld1q_f32(p)
#define STORE(p, v) vst1q_f32(p, v)
#define SET1(x) vdupq_n_f32(x)
#define FMA(x, y, z) vfmaq_f32(z, x, y)
#define QUADS(row, p) vld1q_f32(*(row) + (p))
#define F64(x) vreinterpretq_f64_f32(x)
#define F32(x) vreinterpretq_f32_f64(x)
#define LOW(x, y) vzip1q_f32(x, y)
#define HIGH(x, y) vzip2q_f32(x, y)
#define PAIR0(x, y) F32(vzip1q_f64(F64(x), F64(y)))
#define PAIR1(x, y) F32(vzip2q_f64(F64(x), F64(y)))
#define ISA gemm_neon
#define NAME "neon"
#include "math/gemm_tile.h"
#endif
