/* The tile of a matrix product, for one instruction set: the including file defines
 *
 *	V, W          a vector of W floats
 *	MR, NV        rows and vectors of the highest and widest tile
 *	SUMS          accumulators that fit into the registers beside their operands
 *	LOAD, STORE   of W floats anywhere
 *	SET1, FMA     a scalar in each lane; x·y + z, rounded once
 *	QUADS(row)    the four floats at row[0], row[4] … row[W - 4], one after another
 *	LOW, HIGH     interleave the lower and upper pairs of each four of two vectors
 *	PAIR0, PAIR1  join the lower and upper pairs of each four of two vectors
 *	ISA, NAME
 *
 * All loops over a tile are unrolled: with the sums in memory it has less than half the
 * speed.  A vector type has no portable fused multiply-add, hence the macros.
 */
#include "math/gemm_priv.h"

#define UNROLLED _Pragma("GCC unroll 32")
#define INLINE static inline __attribute__((always_inline))

typedef int32_t bits __attribute__((vector_size(W * sizeof(int32_t))));

/* Small values as +0; NaN stays. */
INLINE V
without_small(V v)
{
	const bits b = (bits)v;
	return (V)(b & ((b & 0x7fffffff) >= GEMM_LEAST));
}

/* The tile for constant `groups`, `each` and `vectors`; `walks`: at_a is there. */
INLINE void
tile(const struct gemm_tile *t, const int groups, const int each, const int vectors,
     const bool walks)
{
	V sum[32];
	const int rows = groups * each;
	const ptrdiff_t lda = t->lda, ldc = t->ldc;
	const float *a = t->a, *b = t->b;
	const int32_t *at_a = t->at_a, *at_b = t->at_b;
	if (t->add) {
		UNROLLED for (int i = 0; i < rows; i++)
			UNROLLED for (int v = 0; v < vectors; v++) sum[i * vectors + v] =
				LOAD(t->c + i * ldc + v * W);
	} else {
		UNROLLED for (int i = 0; i < rows * vectors; i++) sum[i] = SET1(0.0f);
	}
	const int k = t->k;
	for (int p = 0; p < k; p++) {
		V y[NV];
		const float *from = b + at_b[p];
		const float *x = a + (walks ? at_a[p] : p);
		UNROLLED for (int v = 0; v < vectors; v++) y[v] = LOAD(from + v * W);
		UNROLLED for (int i = 0; i < rows; i++)
		{
			const V xi = SET1(x[i / each * lda + i % each]);
			UNROLLED for (int v = 0; v < vectors; v++) sum[i * vectors + v] =
				FMA(xi, y[v], sum[i * vectors + v]);
		}
	}
	UNROLLED for (int i = 0; i < rows; i++) UNROLLED for (int v = 0; v < vectors; v++)
		STORE(t->c + i * ldc + v * W, sum[i * vectors + v]);
}

/* Tiles of constant sizes; higher and wider ones than MR and NV are not asked for. */
#define HEIGHT(m, v)                                                         \
	if (rows == (m)) {                                                   \
		tile(t, (m) <= MR ? (m) : 1, 1, (v) <= NV ? (v) : 1, false); \
		return;                                                      \
	}
#define HEIGHTS(v)   \
	HEIGHT(8, v) \
	HEIGHT(7, v) \
	HEIGHT(6, v) HEIGHT(5, v) HEIGHT(4, v) HEIGHT(3, v) HEIGHT(2, v) HEIGHT(1, v)

static void
product(const struct gemm_tile *t, int rows, int vectors)
{
	if (vectors == 1) {
		HEIGHTS(1)
	} else if (vectors == 2) {
		HEIGHTS(2)
	} else {
		HEIGHTS(3)
	}
}

/* Combinations with more than SUMS accumulators are not asked for. */
#define GROUPED(g, e, v)                                                \
	if (groups == (g)) {                                            \
		tile(t, (g) * (e) * (v) <= SUMS ? (g) : 1, e, v, true); \
		return;                                                 \
	}
#define EACH(e, v)                                                                  \
	if (each == (e)) {                                                          \
		GROUPED(5, e, v) GROUPED(3, e, v) GROUPED(2, e, v) GROUPED(1, e, v) \
	}
#define TAPS(v) EACH(5, v) EACH(4, v) EACH(3, v) EACH(2, v) EACH(1, v)

static void
taps(const struct gemm_tile *t, int groups, int each, int vectors)
{
	if (vectors == 1) {
		TAPS(1)
	} else {
		TAPS(2)
	}
}

static void
pack(const float *b, ptrdiff_t ldb, int k, int n, float *panel)
{
	const int whole = n / W;
	for (int p = 0; p < k; p++, b += ldb) {
		for (int v = 0; v < whole; v++, panel += W)
			STORE(panel, without_small(LOAD(b + v * W)));
		if (n % W == 0)
			continue;
		float rest[W] = { 0 };
		for (int j = 0; j < n % W; j++)
			rest[j] = b[whole * W + j];
		STORE(panel, without_small(LOAD(rest)));
		panel += W;
	}
}

/* The rows p … p + 4·blocks - 1 of one vector of columns, whose W pointers are `row`;
 * `ld` floats between the panel's rows.  All loads of a pointer come together. */
INLINE void
turn_blocks(const float *const row[W], int p, float *to, int ld, const int blocks)
{
	V r[4][4];
	UNROLLED for (int q = 0; q < 4; q++) UNROLLED for (int i = 0; i < blocks; i++)
		r[i][q] = QUADS(row + q, p + 4 * i);
	UNROLLED for (int i = 0; i < blocks; i++, to += 4 * ld)
	{
		const V low0 = LOW(r[i][0], r[i][1]), low1 = LOW(r[i][2], r[i][3]);
		const V high0 = HIGH(r[i][0], r[i][1]), high1 = HIGH(r[i][2], r[i][3]);
		STORE(to, without_small(PAIR0(low0, low1)));
		STORE(to + ld, without_small(PAIR1(low0, low1)));
		STORE(to + 2 * ld, without_small(PAIR0(high0, high1)));
		STORE(to + 3 * ld, without_small(PAIR1(high0, high1)));
	}
}

INLINE void
turn(const float *const row[W], int k, float *to, int ld)
{
	enum { BLOCKS = SUMS < 16 ? 2 : 4 };
	int p = 0;
	for (; p + 4 * BLOCKS <= k; p += 4 * BLOCKS, to += 4 * BLOCKS * ld)
		turn_blocks(row, p, to, ld, BLOCKS);
	for (; p + 4 <= k; p += 4, to += 4 * ld)
		turn_blocks(row, p, to, ld, 1);
	for (; p < k; p++, to += ld) {
		for (int j = 0; j < W; j++)
			to[j] = row[j][p];
		STORE(to, without_small(LOAD(to)));
	}
}

static void
pack_turned(const float *b, ptrdiff_t ldb, int k, int n, float *panel)
{
	const float *row[W];
	const int ld = (n + W - 1) / W * W;
	for (int v = 0; v < ld; v += W) {
		/* Lanes behind column n - 1 repeat that column. */
		for (int j = 0; j < W; j++)
			row[j] = b + (v + j < n ? v + j : n - 1) * ldb;
		turn(row, k, panel + v, ld);
	}
}

const struct gemm_isa ISA = {
	.name = NAME,
	.width = W,
	.rows = MR,
	.vectors = NV,
	.sums = SUMS,
	.product = product,
	.taps = taps,
	.pack = pack,
	.pack_turned = pack_turned,
};
