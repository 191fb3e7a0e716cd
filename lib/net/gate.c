/* The order of what is asked at the door. */
#include "net/gate.h"

#include "sec/hash.h"

#include <string.h>

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
fal_gate_wrong(struct fal_gate *g, uint64_t from, uint64_t now_ns, struct fal_diag *diag)
{
	if (from == 0 || fal_limit_take(&g->wrong, from, now_ns))
		return FAL_EAUTH;
	return fal_diag_set(diag, FAL_ELIMIT, "too many handshakes in a short time");
}

/* Whether it came before; now it did. */
static bool
is_known(struct fal_gate *g, const uint8_t *mac)
{
	for (unsigned i = 0; i < FAL_GATE_SEEN; i++)
		if (memcmp(g->seen[i], mac, FAL_GATE_PRINT) == 0)
			return true;
	memcpy(g->seen[g->next], mac, FAL_GATE_PRINT);
	g->next = (g->next + 1) % FAL_GATE_SEEN;
	return false;
}

int
fal_gate_right(struct fal_gate *g, uint64_t from, uint64_t group, const uint8_t *mac,
	       uint64_t now_ns, struct fal_diag *diag)
{
	if (is_known(g, mac)) {
		fal_diag_set(diag, FAL_EAUTH, "a handshake that was said before");
		return fal_gate_wrong(g, from, now_ns, diag);
	}
	if (from == 0 || fal_limit_take(&g->right, group, now_ns))
		return FAL_OK;
	return fal_diag_set(diag, FAL_ELIMIT,
			    "too many handshakes that opened no session");
}

void
fal_gate_proved(struct fal_gate *g, uint64_t from, uint64_t group)
{
	if (from != 0)
		fal_limit_give(&g->right, group);
}
