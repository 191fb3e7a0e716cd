/* Words on a task that differ. */
#include "trace/words.h"

#include <string.h>

enum { MOST = 3 };

struct word {
	uint32_t id;
	size_t key; /* 0: unknown */
	const char *hash;
};

/* Who is alone with his word among three; n: nobody. */
static size_t
alone(const struct word *w, size_t n)
{
	const bool ab = strcmp(w[0].hash, w[1].hash) == 0;
	if (n < MOST || ab)
		return n;
	if (strcmp(w[1].hash, w[2].hash) == 0)
		return 0;
	return strcmp(w[0].hash, w[2].hash) == 0 ? 1 : n;
}

static size_t
read_words(struct fal_trace_line *l, const struct fal_people *people, struct word *w,
	   struct fal_findings *f)
{
	const json_t *all = fal_trace_at(l->o, FAL_F_WORDS), *o;
	const size_t n = fal_trace_get_len(l, l->o, FAL_F_WORDS);
	size_t i;
	if (l->err == 0 && (n < 2 || n > MOST))
		fal_trace_fail(l, FAL_EFORMAT, "words: %zu", n);
	if (l->err != 0)
		return 0;
	json_array_foreach(all, i, o)
	{
		w[i].id = (uint32_t)fal_trace_get_u64(l, o, FAL_F_ID, UINT32_MAX);
		w[i].hash = fal_trace_get_str(l, o, FAL_F_HASH);
		w[i].key = fal_people_key(people, w[i].id);
		if (l->err == 0 && fal_ids_get(&people->ids, w[i].id) == NULL)
			fal_finding_line(f, l, "verify: worker %u never joined", w[i].id);
		for (size_t k = 0; k < i && l->err == 0; k++)
			if (w[i].id == w[k].id || (w[i].key != 0 && w[i].key == w[k].key))
				fal_finding_line(f, l, "verify: two words of one key");
	}
	return n;
}

int
fal_words_line(struct fal_words *words, struct fal_trace_line *l,
	       const struct fal_people *people, struct fal_findings *f)
{
	static const char *const verdicts[] = { "refuted", "false witness", "undecided" };
	struct word w[MOST];
	const char *verdict = fal_trace_get_str(l, l->o, FAL_F_VERDICT);
	const size_t n = read_words(l, people, w, f);
	uint32_t named = 0;
	if (l->err == 0 && fal_trace_has(l->o, FAL_F_ID))
		named = (uint32_t)fal_trace_get_u64(l, l->o, FAL_F_ID, UINT32_MAX);
	if (l->err != 0)
		return l->err;
	const size_t wrong = alone(w, n);
	const bool decided = wrong < n;
	if (strcmp(w[0].hash, w[1].hash) == 0 ||
	    strcmp(verdict, verdicts[decided ? wrong : 2]) != 0 ||
	    named != (decided ? w[wrong].id : 0))
		fal_finding_line(f, l, "verify: %.32s, but the words say %s", verdict,
				 strcmp(w[0].hash, w[1].hash) == 0
					 ? "the same"
					 : verdicts[decided ? wrong : 2]);
	words->wrong += decided;
	words->undecided += decided ? 0 : fal_trace_get_count(l);
	return l->err;
}
