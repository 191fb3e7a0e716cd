/* Token buckets by source, and the limits on handshakes. */
#include "net/gate.h"

#include "crypto/hash.h"

#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

/* --- token buckets --- */

uint64_t
fal_limit_source(const struct sockaddr *sa)
{
	uint64_t source = 0;
	if (sa->sa_family == AF_INET) {
		struct sockaddr_in sin;
		memcpy(&sin, sa, sizeof(sin));
		/* as the end of a mapped address: no IPv6 prefix is equal */
		source = UINT64_C(0xffff) << 32 | ntohl(sin.sin_addr.s_addr);
	} else if (sa->sa_family == AF_INET6) {
		struct sockaddr_in6 sin6;
		memcpy(&sin6, sa, sizeof(sin6));
		const bool mapped = IN6_IS_ADDR_V4MAPPED(&sin6.sin6_addr);
		for (int i = 0; i < 8; i++)
			source = source << 8 |
				 sin6.sin6_addr.s6_addr[i + (mapped ? 8 : 0)];
	}
	return source;
}

static double
bucket_spent(const struct fal_bucket *b, uint64_t now_ns)
{
	const double back = (double)(now_ns - b->at_ns) * 1e-9 * FAL_LIMIT_RATE;
	return b->at_ns != 0 && b->spent > back ? b->spent - back : 0;
}

static struct fal_bucket *
bucket_of(struct fal_limit *l, uint64_t source)
{
	for (struct fal_bucket *b = l->bucket; b < l->bucket + FAL_LIMIT_SOURCES; b++)
		if (b->at_ns != 0 && b->source == source)
			return b;
	return NULL;
}

bool
fal_limit_take_token(struct fal_limit *l, uint64_t source, uint64_t now_ns)
{
	struct fal_bucket *b = bucket_of(l, source);
	if (b == NULL) {
		b = l->bucket;
		for (int i = 1; i < FAL_LIMIT_SOURCES; i++)
			if (bucket_spent(&l->bucket[i], now_ns) < bucket_spent(b, now_ns))
				b = &l->bucket[i];
	}
	*b = (struct fal_bucket){ source, now_ns, bucket_spent(b, now_ns) };
	if (b->spent > l->burst - 1)
		return false;
	b->spent += 1;
	return true;
}

void
fal_limit_return_token(struct fal_limit *l, uint64_t source)
{
	struct fal_bucket *b = bucket_of(l, source);
	if (b != NULL)
		b->spent = b->spent > 1 ? b->spent - 1 : 0;
}

/* --- handshakes --- */

void
fal_gate_init(struct fal_gate *g)
{
	memset(g, 0, sizeof(*g));
	g->wrong.burst = FAL_GATE_WRONG;
	g->right.burst = FAL_GATE_RIGHT;
}

uint64_t
fal_gate_group(uint64_t from, const char *name)
{
	struct fal_hash_state st;
	uint8_t digest[FAL_HASH_BYTES];
	uint64_t group;
	fal_hash_init(&st);
	fal_hash_update(&st, &from, sizeof(from));
	fal_hash_update(&st, name, strlen(name));
	fal_hash_final(&st, digest);
	memcpy(&group, digest, sizeof(group));
	return group;
}

int
fal_gate_count_wrong(struct fal_gate *g, uint64_t from, uint64_t now_ns,
		     struct fal_diag *diag)
{
	if (from == 0 || fal_limit_take_token(&g->wrong, from, now_ns))
		return FAL_EAUTH;
	return fal_diag_set(diag, FAL_ELIMIT, "too many handshakes in a short time");
}

int
fal_gate_count_right(struct fal_gate *g, uint64_t from, uint64_t group,
		     const uint8_t *mac, uint64_t now_ns, struct fal_diag *diag)
{
	for (unsigned i = 0; i < FAL_GATE_SEEN; i++)
		if (memcmp(g->seen[i], mac, FAL_GATE_PRINT) == 0) {
			fal_diag_set(diag, FAL_EAUTH, "a handshake that has come before");
			return fal_gate_count_wrong(g, from, now_ns, diag);
		}
	memcpy(g->seen[g->next], mac, FAL_GATE_PRINT);
	g->next = (g->next + 1) % FAL_GATE_SEEN;
	if (from == 0 || fal_limit_take_token(&g->right, group, now_ns))
		return FAL_OK;
	return fal_diag_set(diag, FAL_ELIMIT,
			    "too many handshakes that opened no session");
}

void
fal_gate_refund(struct fal_gate *g, uint64_t from, uint64_t group)
{
	if (from != 0)
		fal_limit_return_token(&g->right, group);
}
