/* Token buckets by source. */
#include "net/limit.h"

#include <netinet/in.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>

uint64_t
fal_limit_source(const struct sockaddr *sa)
{
	uint64_t source = 0;
	if (sa->sa_family == AF_INET) {
		struct sockaddr_in sin;
		memcpy(&sin, sa, sizeof(sin));
		/* as the end of the mapped address, which no prefix equals */
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
spent_at(const struct fal_bucket *b, uint64_t now_ns)
{
	const double back = (double)(now_ns - b->at_ns) * 1e-9 * FAL_LIMIT_RATE;
	return b->at_ns != 0 && b->spent > back ? b->spent - back : 0;
}

static struct fal_bucket *
find(struct fal_limit *l, uint64_t source)
{
	for (struct fal_bucket *b = l->bucket; b < l->bucket + FAL_LIMIT_SOURCES; b++)
		if (b->at_ns != 0 && b->source == source)
			return b;
	return NULL;
}

bool
fal_limit_take(struct fal_limit *l, uint64_t source, uint64_t now_ns)
{
	struct fal_bucket *b = find(l, source);
	if (b == NULL) {
		b = l->bucket;
		for (int i = 1; i < FAL_LIMIT_SOURCES; i++)
			if (spent_at(&l->bucket[i], now_ns) < spent_at(b, now_ns))
				b = &l->bucket[i];
	}
	*b = (struct fal_bucket){ source, now_ns, spent_at(b, now_ns) };
	if (b->spent > l->burst - 1)
		return false;
	b->spent += 1;
	return true;
}

void
fal_limit_give(struct fal_limit *l, uint64_t source)
{
	struct fal_bucket *b = find(l, source);
	if (b != NULL)
		b->spent = b->spent > 1 ? b->spent - 1 : 0;
}
