/* When what was done for a round: its version came, its tasks were computed, what they
 * made was sent.  Of the last few rounds, as an ACCOUNT comes when the next ones have
 * begun. */
#include "agent/priv.h"

enum { ROUNDS = sizeof(((struct fal_agent *)0)->times) / sizeof(struct times) };

/* Of the round, if it has begun here. */
static struct times *
find(struct fal_agent *a, uint64_t round)
{
	struct times *t = &a->times[round % ROUNDS];
	return t->round == round && t->compute.from != 0 ? t : NULL;
}

static bool
is_part(const struct lane *l)
{
	return !l->eval && !l->item.check && !l->item.delta;
}

void
agent_times_begin(struct fal_agent *a, const struct lane *l)
{
	struct times *t = &a->times[l->item.round % ROUNDS];
	/* What comes late to a round before is not all of that. */
	if (!is_part(l) || find(a, l->item.round) != NULL || t->round > l->item.round)
		return;
	*t = (struct times){ .round = l->item.round,
			     .version = l->on->version,
			     .pull = { l->on->began, l->on->whole },
			     .compute = { .from = a->since } };
}

void
agent_times_over(struct fal_agent *a, const struct lane *l, const struct fal_ran *ran)
{
	struct times *t = is_part(l) ? find(a, l->item.round) : NULL;
	if (t == NULL || l->cancelled || ran->cancelled)
		return;
	t->compute.to = a->since;
	t->waited = ran->waited_ns > t->waited ? ran->waited_ns : t->waited;
}

void
agent_times_whole(struct fal_agent *a, const struct snapshot *s)
{
	for (int i = 0; i < ROUNDS; i++)
		if (a->times[i].version == s->version && a->times[i].pull.to == 0)
			a->times[i].pull.to = s->whole;
}

void
agent_times_push(struct fal_agent *a, uint64_t round)
{
	struct times *t = find(a, round);
	a->sent = round;
	if (t == NULL)
		return;
	t->push.from = t->push.from != 0 ? t->push.from : a->since;
	t->push.to = a->since;
}

void
agent_times_left(struct fal_agent *a)
{
	struct times *t = find(a, a->sent);
	if (t != NULL && t->push.from != 0)
		t->push.to = a->since;
}

static struct fal_msg_span
ago(const struct fal_agent *a, struct fal_msg_span at)
{
	return (struct fal_msg_span){ a->since - at.from, a->since - at.to };
}

int
agent_times_say(struct fal_agent *a, uint64_t round)
{
	const struct times *t = find(a, round);
	struct fal_msg m = { .type = FAL_MSG_SPANS };
	if (t == NULL || t->pull.from == 0 || t->pull.to == 0 || t->compute.to == 0 ||
	    t->push.to == 0)
		return FAL_OK;
	m.spans.mark = round;
	m.spans.pull = ago(a, t->pull);
	m.spans.compute = ago(a, t->compute);
	m.spans.push = ago(a, t->push);
	m.spans.waited = t->waited;
	m.spans.streamed = a->streamed;
	a->streamed = 0;
	return agent_send(a, &m, false);
}
