/* Hashes of versions. */
#include "trace/leaf.h"

#include "wire/bfp.h"

uint32_t
fal_leaf_every(size_t n)
{
	enum { EACH = 1 << 20, LEAST = 16 };
	const size_t every = (n + EACH - 1) / EACH;
	return (uint32_t)(every > LEAST ? every : LEAST);
}

void
fal_leaves(const float *params, size_t n, uint8_t *out)
{
	static const char label[] = "falcon leaf";
	const size_t whole = n / FAL_BLOCK, rest = n % FAL_BLOCK;
	fal_hash_each(label, params, FAL_BLOCK * sizeof(*params), whole, out);
	fal_hash_each(label, params + whole * FAL_BLOCK, rest * sizeof(*params), rest > 0,
		      out + whole * FAL_HASH_BYTES);
}

static void
begin(struct fal_hash_state *s)
{
	fal_hash_label(s, "falcon version");
}

void
fal_leaf_root(const uint8_t *leaves, uint32_t blocks, uint8_t out[static FAL_HASH_BYTES])
{
	struct fal_hash_state s;
	begin(&s);
	fal_hash_update(&s, leaves, (size_t)blocks * FAL_HASH_BYTES);
	fal_hash_final(&s, out);
}

void
fal_leaf_model(const float *params, size_t n, uint8_t out[static FAL_HASH_BYTES])
{
	uint8_t leaves[FAL_LEAVES_TOGETHER * FAL_HASH_BYTES];
	struct fal_hash_state s;
	begin(&s);
	for (size_t from = 0; from < n; from += FAL_LEAVES_TOGETHER * FAL_BLOCK) {
		const size_t most = FAL_LEAVES_TOGETHER * FAL_BLOCK;
		const size_t part = n - from < most ? n - from : most;
		fal_leaves(params + from, part, leaves);
		fal_hash_update(&s, leaves, fal_blocks(part) * (size_t)FAL_HASH_BYTES);
	}
	fal_hash_final(&s, out);
}

void
fal_leaf_exponents(const int8_t *exps, uint32_t blocks,
		   uint8_t out[static FAL_HASH_BYTES])
{
	struct fal_hash_state s;
	fal_hash_label(&s, "falcon exponents");
	fal_hash_update(&s, exps, blocks);
	fal_hash_final(&s, out);
}
