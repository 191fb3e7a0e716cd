/* Falcon's own matrix product: the same bits on every CPU.
 *
 * Each element of C is one chain of fused multiply-adds in ascending order of k, whatever
 * the blocks, the tiles and the vectors: a block of k stores partial sums, and the next
 * block goes on from there.  So the choice of the instruction set, by the CPU alone, does
 * not change a bit.
 */
#include "math/gemm_priv.h"

#include "base/vector.h"
#include "math/kern.h"

#include <string.h>

/* Depth and columns of a block of B: 240 KB when packed, for an L2 cache of 256 KB.
 * COLS is a multiple of all panels' widths. */
enum { DEPTH = 320, COLS = 192, ROWS_MAX = 8, PANEL_MAX = 48 };

_Static_assert(FAL_GEMM_SCRATCH >= DEPTH * COLS, "a packed block fits into the scratch");

const char *
fal_gemm_isa(void)
{
	const struct gemm_isa *isa = gemm_isa();
	return isa != NULL ? isa->name : NULL;
}

FAL_VECTOR void
fal_clear_small(float *x, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		uint32_t v;
		memcpy(&v, &x[i], sizeof(v));
		v = (v & 0x7fffffff) >= GEMM_LEAST ? v : 0;
		memcpy(&x[i], &v, sizeof(v));
	}
}

/* Packs columns `j0` … of B, at most COLS, and rows `p0` …, `k` of them. */
static void
pack_block(const struct gemm_isa *isa, const struct fal_gemm *g, int p0, int k, int j0,
	   int n)
{
	const int wide = isa->vectors * isa->width;
	const ptrdiff_t ldb = g->ldb;
	float *panel = g->scratch;
	for (int j = 0; j < n; j += wide, panel += k * wide) {
		const int cols = n - j < wide ? n - j : wide;
		if (g->tb)
			isa->pack_turned(g->b + (j0 + j) * ldb + p0, ldb, k, cols, panel);
		else
			isa->pack(g->b + p0 * ldb + j0 + j, ldb, k, cols, panel);
	}
}

/* Copies the `cols` columns of `rows` rows. */
static void
copy_tile(const float *from, ptrdiff_t ld_from, float *to, ptrdiff_t ld_to, int rows,
	  int cols)
{
	for (int i = 0; i < rows; i++)
		memcpy(to + i * ld_to, from + i * ld_from, (size_t)cols * sizeof(*to));
}

/* A tile whose last vector is partly outside C, by a copy: AVX2 and NEON lack cheap
 * masked stores. */
static void
compute_edge(const struct gemm_isa *isa, const struct gemm_tile *t, int rows, int vectors,
	     int cols)
{
	float edge[ROWS_MAX * PANEL_MAX];
	const int ld = vectors * isa->width;
	struct gemm_tile u = *t;
	u.c = edge;
	u.ldc = ld;
	if (t->add)
		copy_tile(t->c, t->ldc, edge, ld, rows, cols);
	isa->product(&u, rows, vectors);
	copy_tile(edge, ld, t->c, t->ldc, rows, cols);
}

FAL_VECTOR static void
fill_steps(int32_t *at, int n, int step)
{
	for (int i = 0; i < n; i++)
		at[i] = i * step;
}

/* All tiles of a packed block.  A is read in its place, since the rows of a tile, up to
 * 8·DEPTH floats, stay in the L1 cache while the panels pass, and net.c keeps A free of
 * small values. */
static void
compute_block(const struct gemm_isa *isa, const struct fal_gemm *g, int p0, int k, int j0,
	      int n)
{
	int32_t at_whole[DEPTH], at_last[DEPTH];
	const int wide = isa->vectors * isa->width, last = n % wide;
	const int last_vectors = (last + isa->width - 1) / isa->width;
	fill_steps(at_whole, k, wide);
	fill_steps(at_last, k, last_vectors * isa->width);
	struct gemm_tile t = {
		.k = k, .lda = g->lda, .ldc = g->ldc, .add = g->add || p0 > 0
	};
	for (int i = 0; i < g->m; i += isa->rows) {
		const int rows = g->m - i < isa->rows ? g->m - i : isa->rows;
		t.a = g->a + i * t.lda + p0;
		t.b = g->scratch;
		t.c = g->c + i * t.ldc + j0;
		t.at_b = at_whole;
		for (int j = 0; j + wide <= n; j += wide) {
			isa->product(&t, rows, isa->vectors);
			t.b += k * wide;
			t.c += wide;
		}
		t.at_b = at_last;
		if (last % isa->width != 0)
			compute_edge(isa, &t, rows, last_vectors, last);
		else if (last > 0)
			isa->product(&t, rows, last_vectors);
	}
}

void
gemm_compute(const struct fal_gemm *g)
{
	const struct gemm_isa *isa = gemm_isa();
	/* With one row of tiles a panel is used once, and half as deep a panel stays in
	 * the L1 cache meanwhile: 5 % of an MLP's task of 8 samples. */
	const bool is_low = g->m <= isa->rows;
	const int cols = is_low ? isa->vectors * isa->width : COLS;
	const int depth = is_low ? DEPTH / 2 : DEPTH;
	for (int p = 0; p < g->k; p += depth) {
		const int k = g->k - p < depth ? g->k - p : depth;
		for (int j = 0; j < g->n; j += cols) {
			const int n = g->n - j < cols ? g->n - j : cols;
			pack_block(isa, g, p, k, j, n);
			compute_block(isa, g, p, k, j, n);
		}
	}
}
