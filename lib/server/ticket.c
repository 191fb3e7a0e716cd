/* Tickets. */
#include "server/ticket.h"

#include "crypto/secret.h"

#include <string.h>

enum { SAID = 9 * 4 + 2 * 8 + 2 }; /* bytes of what the MAC covers */

static uint8_t *
put(uint8_t *out, uint64_t v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		out[i] = (uint8_t)(v >> (8 * i));
	return out + n;
}

/* Of all that the ticket says, and of where it is good. */
static void
mac_of(const struct fal_ticket_in *in, uint32_t session, const struct fal_msg_ticket *m,
       uint8_t out[static FAL_HASH_BYTES])
{
	const uint32_t words[] = { session,   in->incarnation, in->epoch,
				   m->worker, m->seq,          m->tasks,
				   m->of,     m->fills_worker, m->fills_seq };
	uint8_t said[SAID], *p = said;
	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		p = put(p, words[i], 4);
	p = put(p, m->round, 8);
	p = put(p, m->version, 8);
	p = put(p, m->kind, 1);
	p = put(p, m->mixed, 1);
	fal_mac("falcon ticket", in->key, said, (size_t)(p - said), out);
}

uint64_t
fal_ticket_seed(const struct fal_ticket_in *in, uint64_t round)
{
	uint8_t said[4 + 8], mac[FAL_HASH_BYTES];
	uint64_t seed = 0;
	put(put(said, in->incarnation, 4), round, 8);
	fal_mac("falcon sums", in->key, said, sizeof(said), mac);
	for (size_t i = 0; i < sizeof(seed); i++)
		seed |= (uint64_t)mac[i] << (8 * i);
	return seed;
}

void
fal_ticket_put(const struct fal_ticket_in *in, uint32_t session,
	       const struct fal_ticket *t, struct fal_msg_ticket *out)
{
	*out = (struct fal_msg_ticket){ .round = t->round,
					.worker = t->id.worker,
					.seq = t->id.seq,
					.tasks = t->tasks,
					.fills_worker = t->fills.worker,
					.fills_seq = t->fills.seq,
					.version = t->facts.version,
					.of = t->facts.tasks,
					.kind = (uint8_t)t->facts.kind,
					.mixed = t->facts.mixed };
	mac_of(in, session, out, out->mac);
}

bool
fal_ticket_get(const struct fal_ticket_in *in, uint32_t session,
	       const struct fal_msg_ticket *m, struct fal_ticket *out)
{
	uint8_t mac[FAL_HASH_BYTES];
	mac_of(in, session, m, mac);
	*out = (struct fal_ticket){ .round = m->round,
				    .id = { m->worker, m->seq },
				    .fills = { m->fills_worker, m->fills_seq },
				    .tasks = m->tasks,
				    .facts = { .version = m->version,
					       .tasks = m->of,
					       .kind = (enum fal_kind)m->kind,
					       .mixed = m->mixed != 0 } };
	return fal_secret_equal(mac, m->mac, sizeof(mac));
}
