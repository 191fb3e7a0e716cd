/* Computes the links of lines and the hashes of versions. */
#include "trace/chain.h"

#include "base/parse.h"
#include "crypto/hash.h"
#include "wire/bfp.h"

#include <string.h>

/* The text around a link at the end of a line. */
static const char link_head[] = ",\"h\":\"", link_tail[] = "\"}";
enum { HEAD = sizeof(link_head) - 1, TAIL = sizeof(link_tail) - 1 };

/* Computes the link of a line with these n bytes before the member `h`. */
static void
chain_compute_link(const struct fal_chain *c, const char *body, size_t n,
		   char link[static FAL_CHAIN_DIGITS + 1])
{
	struct fal_hash_state s;
	uint8_t digest[FAL_HASH_BYTES];
	fal_hash_init(&s);
	fal_hash_update(&s, c->link, strlen(c->link));
	fal_hash_update(&s, body, n);
	fal_hash_final(&s, digest);
	fal_hex(digest, FAL_CHAIN_DIGITS / 2, link);
}

void
fal_chain_put(struct fal_chain *c, const char *line, size_t n, struct fal_buf *out)
{
	struct fal_chain next;
	chain_compute_link(c, line, n - 1, next.link);
	fal_put_bytes(out, line, n - 1);
	fal_put_fmt(out, "%s%s%s\n", link_head, next.link, link_tail);
	if (out->err == 0)
		*c = next;
}

bool
fal_chain_link(const char *line, size_t n, char link[static FAL_CHAIN_DIGITS + 1])
{
	enum { MEMBER = HEAD + FAL_CHAIN_DIGITS + TAIL };
	if (n > 0 && line[n - 1] == '\n')
		n--;
	if (n < MEMBER)
		return false;
	const char *at = line + n - MEMBER, *digits = at + HEAD;
	if (memcmp(at, link_head, HEAD) != 0 ||
	    memcmp(digits + FAL_CHAIN_DIGITS, link_tail, TAIL) != 0)
		return false;
	for (size_t i = 0; i < FAL_CHAIN_DIGITS; i++)
		if (memchr("0123456789abcdef", digits[i], 16) == NULL)
			return false;
	memcpy(link, digits, FAL_CHAIN_DIGITS);
	link[FAL_CHAIN_DIGITS] = '\0';
	return true;
}

bool
fal_chain_take(struct fal_chain *c, const char *line, size_t n)
{
	struct fal_chain found = { "" }, want;
	const bool has = fal_chain_link(line, n, found.link);
	if (has)
		chain_compute_link(c, line, n - HEAD - FAL_CHAIN_DIGITS - TAIL,
				   want.link);
	const bool holds = has && strcmp(found.link, want.link) == 0;
	*c = found;
	return holds;
}

/* ---- versions ---------------------------------------------------------------------- */

uint32_t
fal_leaf_interval(size_t n)
{
	enum { EACH = 1 << 20, LEAST = 16 };
	const size_t every = (n + EACH - 1) / EACH;
	return (uint32_t)(every > LEAST ? every : LEAST);
}

void
fal_leaf_hashes(const float *params, size_t n, uint8_t *out)
{
	static const char label[] = "falcon leaf";
	const size_t blocks = n / FAL_BLOCK, rest = n % FAL_BLOCK;
	fal_hash_many(label, params, FAL_BLOCK * sizeof(*params), blocks, out);
	fal_hash_many(label, params + blocks * FAL_BLOCK, rest * sizeof(*params),
		      rest > 0, out + blocks * FAL_HASH_BYTES);
}

static const char version_label[] = "falcon version";

void
fal_leaf_root(const uint8_t *leaves, uint32_t blocks, uint8_t out[static FAL_HASH_BYTES])
{
	struct fal_hash_state s;
	fal_hash_label(&s, version_label);
	fal_hash_update(&s, leaves, (size_t)blocks * FAL_HASH_BYTES);
	fal_hash_final(&s, out);
}

void
fal_leaf_model(const float *params, size_t n, uint8_t out[static FAL_HASH_BYTES])
{
	uint8_t leaves[FAL_LEAF_BATCH * FAL_HASH_BYTES];
	struct fal_hash_state s;
	fal_hash_label(&s, version_label);
	for (size_t from = 0; from < n; from += FAL_LEAF_BATCH * FAL_BLOCK) {
		const size_t most = FAL_LEAF_BATCH * FAL_BLOCK;
		const size_t part = n - from < most ? n - from : most;
		fal_leaf_hashes(params + from, part, leaves);
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
