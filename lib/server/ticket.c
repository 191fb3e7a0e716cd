/* Tickets. */
#include "server/ticket.h"

#include "crypto/secret.h"

#include <string.h>

enum { MAC_INPUT = 9 * 4 + 2 * 8 + 2 }; /* bytes that the MAC covers */

static uint8_t *
ticket_put_le(uint8_t *out, uint64_t v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		out[i] = (uint8_t)(v >> (8 * i));
	return out + n;
}

/* Computes the MAC over all fields of the ticket and over its scope. */
static void
ticket_mac(const struct fal_ticket_scope *in, uint32_t session,
	   const struct fal_msg_ticket *m, uint8_t out[static FAL_HASH_BYTES])
{
	const uint32_t words[] = { session,   in->incarnation, in->epoch,
				   m->worker, m->seq,          m->tasks,
				   m->of,     m->fills_worker, m->fills_seq };
	uint8_t input[MAC_INPUT], *p = input;
	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		p = ticket_put_le(p, words[i], 4);
	p = ticket_put_le(p, m->round, 8);
	p = ticket_put_le(p, m->version, 8);
	p = ticket_put_le(p, m->kind, 1);
	p = ticket_put_le(p, m->mixed, 1);
	fal_mac("falcon ticket", in->key, input, (size_t)(p - input), out);
}

uint64_t
fal_ticket_seed(const struct fal_ticket_scope *in, uint64_t round)
{
	uint8_t input[4 + 8], mac[FAL_HASH_BYTES];
	uint64_t seed = 0;
	ticket_put_le(ticket_put_le(input, in->incarnation, 4), round, 8);
	fal_mac("falcon sums", in->key, input, sizeof(input), mac);
	for (size_t i = 0; i < sizeof(seed); i++)
		seed |= (uint64_t)mac[i] << (8 * i);
	return seed;
}

void
fal_ticket_put(const struct fal_ticket_scope *in, uint32_t session,
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
	ticket_mac(in, session, out, out->mac);
}

bool
fal_ticket_get(const struct fal_ticket_scope *in, uint32_t session,
	       const struct fal_msg_ticket *m, struct fal_ticket *out)
{
	uint8_t mac[FAL_HASH_BYTES];
	ticket_mac(in, session, m, mac);
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
