/* A process of shards for another coordinator's job (falcon-ps --join): one connection
 * after another, and what lives longer than they do; what it is given, job, blocks and
 * values, and what becomes of these; the workers' sessions, which each of them opens with
 * the key that the coordinator gave to both. */
#include "base/build.h"
#include "base/mem.h"
#include "base/text.h"
#include "cli/notify.h"
#include "crypto/secret.h"
#include "job/job.h"
#include "model/model.h"
#include "net/conn.h"
#include "run/job_files.h"
#include "server.h"
#include "wire/bfp.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

enum {
	PART_MS = 10000,          /* for workers to take what they were sent */
	LINE = 32 + FAL_KEY_TEXT, /* bytes of a line of the keyring, at most */
	TEXT_MAX = 1 << 20,       /* bytes of a job's or a model's text */
	YET = 1 << 20, /* of code and streams, until there are shards: measured */
};

/* A worker's session with the coordinator. */
struct ps_guest {
	struct ps_join *join;
	uint32_t id;
	uint8_t *psk; /* in locked memory */
	bool attached;
	struct ps_reader reader; /* its channel, once it has come */
};

struct ps_join {
	struct ps_run *run;
	uv_loop_t loop;
	uv_timer_t timer; /* to try again, or the end */
	uv_signal_t on_int, on_term;
	struct fal_listen *listen;
	struct fal_link link; /* of all that it sends, with --rate-limit */
	uint64_t busy;        /* of that */
	struct fal_keyring *keys;
	uint8_t *secret;       /* its own static key, in locked memory */
	struct fal_chan *chan; /* to the coordinator */
	bool open;
	struct fal_diag later; /* why the coordinator goes, as it said; "": it did not */
	struct fal_diag bye;   /* it was drained: what it says when workers have all */
	bool parting;          /* so it is */
	bool ending;
	int code;

	/* The job's part, from PLACE on; `of` 0: none. */
	uint32_t incarnation, of, first, count, tasks;
	struct fal_ticket_in tickets;
	uint8_t cut[FAL_SHARDS_MAX * sizeof(struct fal_extent)];
	size_t cut_n;           /* bytes of which shard has which blocks */
	struct fal_buf text[2]; /* job, model */
	uint32_t size[2];
	struct fal_job job;
	struct fal_model *model;
	struct fal_shard_set *shard_set; /* NULL: the texts are not here yet */
	uint32_t became;                 /* shards that are what they should be */
	uint32_t versions;               /* that were to be kept, at most */
	uint64_t program;                /* bytes of itself, before it had shards */
	uint64_t need;                   /* as it was said last, in bytes */
	bool near;                       /* all workers so far were on this machine */
	struct fal_map map, to; /* that holds; that will, in a move: else no shards */
	struct image_intake coming;
	struct ps_wants wants;
	struct ps_guest **guest; /* by id */
	size_t guests, guest_cap;
	struct image_queue images;
};

static void dial(struct ps_join *j);

/* The options of its channels. */
static struct fal_chan_opt
join_chan_opt(const struct ps_join *j)
{
	return (struct fal_chan_opt){ .link = j->link.bandwidth > 0 ? &j->link : NULL };
}

/* A fal_shard_codec_each: a piece of a SAY goes to the coordinator; what is lost ends the
 * incarnation there. */
static int
join_piece(void *join, const struct fal_buf *msg)
{
	const struct ps_join *j = join;
	if (fal_chan_send(j->chan, msg, FAL_SEND_CONTROL) < 0)
		fal_chan_close(j->chan);
	return FAL_OK;
}

static void
join_say(struct ps_join *j, struct fal_msg *m)
{
	m->incarnation = j->incarnation;
	ps_say(j->chan, m, FAL_SEND_CONTROL);
}

/* ---- workers' sessions ------------------------------------------------------------ */

/* The guest of this session; NULL: there is none. */
static struct ps_guest *
guest_find(const struct ps_join *j, uint32_t id)
{
	for (size_t i = 0; i < j->guests; i++)
		if (j->guest[i]->id == id)
			return j->guest[i];
	return NULL;
}

/* Makes the keyring of the guests that there are: the listener opens to no others.
 * FAL_ELIMIT: they are too many; FAL_EFORMAT: one has a key that is none. */
static int
guest_keys(struct ps_join *j)
{
	const size_t most = (j->guests + 1) * LINE;
	char *text = fal_secret_alloc(most);
	char *key = fal_secret_alloc(FAL_KEY_TEXT + 1);
	struct fal_keyring *fresh = NULL;
	fal_key_encode(j->secret, key);
	size_t n = (size_t)snprintf(text, most, "shard self %s\n", key);
	for (size_t i = 0; i < j->guests; i++) {
		fal_key_encode(j->guest[i]->psk, key);
		n += (size_t)snprintf(text + n, most - n, "session%u work %s\n",
				      j->guest[i]->id, key);
	}
	const int err = fal_keyring_parse(text, n, "sessions", &fresh, NULL);
	fal_secret_free(text);
	fal_secret_free(key);
	if (err < 0)
		return err;
	if (j->listen != NULL)
		fal_listen_keyring(j->listen, fresh);
	fal_keyring_free(j->keys);
	j->keys = fresh;
	return FAL_OK;
}

static void
free_guest(struct ps_guest *g)
{
	if (g->reader.chan != NULL)
		fal_chan_kill(g->reader.chan);
	ps_reader_end(&g->join->wants, &g->reader);
	fal_secret_key_free(g->psk);
	free(g);
}

/* ADMIT: a worker will come, with this key.  FAL_ESTATE: it is known; else as of
 * guest_keys. */
static int
guest_admit(struct ps_join *j, const struct fal_msg *m)
{
	struct fal_msg known = { .type = FAL_MSG_ADMITTED,
				 .admitted.session = m->admit.session };
	if (guest_find(j, m->admit.session) != NULL)
		return FAL_ESTATE;
	struct ps_guest *g = fal_xcalloc(1, sizeof(*g));
	g->join = j;
	g->id = m->admit.session;
	g->psk = fal_secret_key();
	memcpy(g->psk, m->admit.psk, FAL_KEY_BYTES);
	FAL_XGROW(j->guest, j->guest_cap, j->guests + 1);
	j->guest[j->guests++] = g;
	const int err = guest_keys(j);
	if (err == FAL_OK)
		join_say(j, &known);
	return err;
}

static void
guest_dismiss(struct ps_join *j, uint32_t id)
{
	for (size_t i = 0; i < j->guests; i++)
		if (j->guest[i]->id == id) {
			free_guest(j->guest[i]);
			j->guest[i] = j->guest[--j->guests];
			(void)guest_keys(j); /* of the others, which were good */
			return;
		}
}

/* ---- the end ---------------------------------------------------------------------- */

/* Forgets the job: the coordinator is gone. */
static void
place_forget(struct ps_join *j)
{
	while (j->guests > 0)
		free_guest(j->guest[--j->guests]);
	(void)guest_keys(j); /* of nobody */
	ps_wants_forget(&j->wants);
	fal_shard_set_free(j->shard_set);
	j->shard_set = NULL;
	fal_model_free(j->model);
	j->model = NULL;
	fal_job_free(&j->job);
	for (int i = 0; i < 2; i++)
		fal_buf_free(&j->text[i]);
	fal_image_free(&j->coming.image);
	j->coming.any = false;
	image_queue_clear(&j->images);
	fal_secret_wipe(&j->tickets, sizeof(j->tickets));
	j->of = j->became = j->versions = 0;
	j->need = 0;
	j->map = j->to = (struct fal_map){ 0 };
}

/* Ends the process with this exit code, and why; NULL: it was said. */
static void
join_end(struct ps_join *j, int code, const char *why)
{
	if (j->ending)
		return;
	if (why != NULL)
		fal_cli_err(PROG, "%s", why);
	j->ending = true;
	j->code = code;
	if (j->chan != NULL && j->open)
		fal_chan_close(j->chan);
	else if (j->chan != NULL)
		fal_chan_kill(j->chan);
	place_forget(j);
	fal_listen_close(j->listen);
	j->listen = NULL;
	ps_close(&j->timer);
	/* Another signal is heard, and changes nothing. */
	uv_unref((uv_handle_t *)&j->on_int);
	uv_unref((uv_handle_t *)&j->on_term);
}

/* A drained process ends when its workers have taken all that was sent to them. */
static void
join_parted(struct ps_join *j)
{
	size_t i = 0;
	while (i < j->guests && j->guest[i]->reader.chan == NULL)
		i++;
	if (j->parting && !j->ending && i == j->guests)
		join_end(j, FAL_EXIT_DONE, j->bye.text);
}

/* ---- what its shards say and send --------------------------------------------- */

/* Sends the words of the shards, and versions that are wanted and made; SERVED before the
 * word of a new version.  A lack of memory ends the process. */
static void
place_speak(struct ps_join *j)
{
	struct fal_shard_say say;
	uint32_t shard;
	int err = FAL_OK;
	while (err == FAL_OK && fal_shard_set_next(j->shard_set, &shard, &say)) {
		if (say.kind == FAL_SAY_STEPPED) {
			struct fal_msg m;
			struct fal_buf rows = { 0 };
			ps_served_put(&j->wants.served, j->first, j->count, &m, &rows);
			join_say(j, &m);
			fal_buf_free(&rows);
		}
		err = fal_shard_codec_say(j->incarnation, shard - j->first, &say,
					  join_piece, j);
	}
	if (err == FAL_OK)
		err = ps_wants_leave(&j->wants);
	if (err < 0)
		join_end(j, FAL_EXIT_NO, fal_strerror(err));
}

/* The memory of an image that has left is for the shard's next mark. */
static void
on_left(void *arg, struct queued_image *p)
{
	const struct ps_join *j = arg;
	if (p->of.what != FAL_FETCH_MARKED || p->image.arrays == 0)
		return;
	struct fal_shard *shard = fal_shard_set_at(j->shard_set, j->first + p->of.shard);
	if (shard != NULL)
		fal_shard_spare(shard, &p->image);
}

/* There is room for what is long. */
static void
place_more(struct ps_join *j)
{
	image_queue_send(&j->images, j->incarnation, j->chan, on_left, j);
}

/* ---- what it is given ------------------------------------------------------------- */

static int
on_place(struct ps_join *j, const struct fal_msg *m)
{
	if (j->of > 0 || m->place.of > FAL_SHARDS_MAX || m->place.count < 1 ||
	    m->place.first >= m->place.of ||
	    m->place.count > m->place.of - m->place.first)
		return FAL_ESTATE;
	if (m->place.job_n < 1 || m->place.job_n > TEXT_MAX || m->place.model_n < 1 ||
	    m->place.model_n > TEXT_MAX)
		return FAL_ELIMIT;
	j->incarnation = m->incarnation;
	j->of = m->place.of;
	j->first = m->place.first;
	j->count = m->place.count;
	j->tasks = m->place.tasks;
	j->size[0] = m->place.job_n;
	j->size[1] = m->place.model_n;
	j->tickets = (struct fal_ticket_in){ .epoch = m->place.epoch,
					     .incarnation = m->incarnation };
	memcpy(j->tickets.key, m->place.key, sizeof(j->tickets.key));
	if (m->place.map.n > sizeof(j->cut))
		return FAL_ELIMIT;
	j->cut_n = m->place.map.n;
	if (j->cut_n > 0)
		memcpy(j->cut, m->place.map.p, j->cut_n);
	return FAL_OK;
}

/* Values that its shards have by a map. */
static size_t
values_of(const struct ps_join *j, const struct fal_map *map)
{
	size_t n = 0;
	for (uint32_t i = j->first; i < j->first + j->count; i++)
		n += (size_t)map->of[i].count * FAL_BLOCK;
	return n < j->model->params ? n : j->model->params;
}

/* Logs the memory that so many values need, if the need has grown, and checks that it is
 * allowed; else FAL_ELIMIT, with `why`. */
static int
afford(struct ps_join *j, size_t n, struct fal_diag *why)
{
	struct fal_shard_set_conf part = {
		.shards = 1, .each = fal_files_shard_conf(&j->job, j->model, j->tasks)
	};
	part.each.n = n;
	if (j->program == 0)
		j->program = fal_need_begun(
			YET + fal_threads_bytes((uint32_t)j->run->opt.threads));
	const struct ps_need_part_of of = { .program = j->program,
					    .shard_set = &part,
					    .rule = &j->job.rule,
					    .workers = j->guests > 0 ? j->guests : 1,
					    .versions = j->versions,
					    .mixed = ps_has_port(&j->run->listen) };
	const uint64_t need = ps_need_part(&of);
	const bool more = need > j->need;
	j->need = need;
	if (n > 0 && more)
		fal_cli_err(PROG, "%s: shards %u to %u of %u need %" PRIu64 " MiB",
			    j->job.name, j->first + 1, j->first + j->count, j->of,
			    fal_need_mib(need));
	int err = fal_need_allowed(need, 0, j->run->opt.max_memory, why);
	if (err < 0)
		fal_cli_err(PROG, "%s", why->text);
	return err;
}

/* The process's shards are what they should be: with a job under way, without blocks
 * yet. */
static void
has_all(struct ps_join *j)
{
	struct fal_msg placed = { .type = FAL_MSG_PLACED,
				  .placed.epoch = j->tickets.epoch };
	const bool any = values_of(j, &j->map) > 0;
	j->became = j->count;
	join_say(j, &placed);
	fal_cli_err(PROG, "%s: %s: %s shards %u to %u of %u%s", j->run->opt.join,
		    j->job.name, any ? "has" : "is", j->first + 1, j->first + j->count,
		    j->of, any ? "" : ", without blocks yet");
}

/* Job and model are here. */
static int
make(struct ps_join *j)
{
	const struct fal_setup_text job = { "job", j->text[0].p, j->text[0].n },
				    model = { "model", j->text[1].p, j->text[1].n };
	struct fal_diag diag = { "" };
	int err = fal_setup_parse(&job, &model, &j->job, &j->model, &diag);
	if (err < 0) {
		fal_cli_err(PROG, "%s",
			    diag.text[0] != '\0' ? diag.text : fal_strerror(err));
		return err;
	}
	const struct fal_tail cut = { j->cut, j->cut_n };
	struct fal_map map;
	err = fal_map_get(&cut, j->tickets.epoch, fal_blocks(j->model->params), &map);
	if (err < 0 || map.shards != j->of)
		return FAL_EFORMAT;
	/* Either each of its shards has blocks, or none has. */
	uint32_t with = 0;
	for (uint32_t i = j->first; i < j->first + j->count; i++)
		with += map.of[i].count > 0;
	if (with != 0 && with != j->count)
		return FAL_EFORMAT;
	/* The blocks come as in a move, from a map by which no shard has any. */
	const struct fal_map none = { .epoch = map.epoch, .shards = map.shards };
	const struct fal_shard_order begin = { .kind = FAL_ORDER_MIGRATE_BEGIN,
					       .map = &map };
	struct fal_shard_set_conf conf = { .map = with > 0 ? &none : &map,
					   .first = j->first,
					   .here = j->count,
					   .tickets = j->tickets,
					   .each = fal_files_shard_conf(&j->job, j->model,
									j->tasks) };
	conf.each.parallel = fal_threads_parallel(j->run->threads);
	conf.each.at_once = &j->near;
	j->near = true;
	j->map = map;
	err = afford(j, values_of(j, &map), &diag);
	if (err < 0)
		return err;
	j->shard_set = fal_shard_set_new(&conf, NULL);
	if (j->shard_set == NULL)
		return FAL_ENOMEM;
	j->wants.publisher.shard_set = j->shard_set;
	j->wants.publisher.parallel = conf.each.parallel;
	j->wants.publisher.placed = j->job.placement == FAL_JOB_PLACEMENT_PSLD;
	j->wants.publisher.incarnation = j->incarnation;
	j->wants.publisher.rule = j->job.rule;
	j->wants.publisher.mixed = ps_has_port(&j->run->listen);
	fal_hash(j->text[0].p, j->text[0].n, j->wants.publisher.job_hash);
	if (with > 0)
		return fal_shard_set_order(j->shard_set, &begin);
	has_all(j);
	return FAL_OK;
}

static int
on_text(struct ps_join *j, const struct fal_msg *m)
{
	if (m->text.which > 1 || j->shard_set != NULL)
		return FAL_ESTATE;
	struct fal_buf *b = &j->text[m->text.which];
	if (m->text.offset != b->n || m->text.bytes.n > j->size[m->text.which] - b->n)
		return FAL_ESTATE;
	fal_put_bytes(b, m->text.bytes.p, m->text.bytes.n);
	if (b->err < 0)
		return b->err;
	return j->text[0].n == j->size[0] && j->text[1].n == j->size[1] ? make(j)
									: FAL_OK;
}

/* Counts the shards that have all of their blocks; with the last one the process is
 * placed. */
static int
become(struct ps_join *j)
{
	const struct fal_shard_order commit = { .kind = FAL_ORDER_COMMIT };
	struct fal_shard_say say;
	uint32_t shard;
	while (fal_shard_set_next(j->shard_set, &shard, &say))
		j->became++;
	if (j->became < j->count)
		return FAL_OK;
	int err = fal_shard_set_order(j->shard_set, &commit);
	if (err == FAL_OK)
		has_all(j);
	return err;
}

/* An image has come, if `got` is 1: a part of what a shard will be. */
static int
graft(struct ps_join *j, int got)
{
	const struct fal_shard_codec_of *of = &j->coming.of;
	const struct fal_shard_set_piece piece = { of->epoch, of->first, of->count,
						   j->coming.image };
	if (got != 1)
		return got;
	int err = fal_shard_set_graft(j->shard_set, of->shard, &piece);
	fal_image_free(&j->coming.image);
	if (err < 0)
		return err;
	if (j->became < j->count)
		return become(j);
	place_speak(j);
	return FAL_OK;
}

static int
on_image(struct ps_join *j, const struct fal_msg *m)
{
	if (j->shard_set == NULL || j->coming.any || m->image.what != FAL_FETCH_PIECE ||
	    m->image.blocks < 1 || m->image.blocks > fal_blocks(j->model->params) ||
	    m->image.shard - j->first >= j->count || m->image.arrays.n == 0)
		return FAL_ESTATE;
	return graft(j, image_intake_begin(&j->coming, m, m->image.blocks));
}

/* Queues a piece for a shard elsewhere, by way of the coordinator; takes its image. */
static int
give_piece(void *join, uint32_t to, struct fal_shard_set_piece *piece)
{
	struct ps_join *j = join;
	image_queue_add_piece(&j->images, to, piece);
	return FAL_OK;
}

/* A move begins, for which the process has its old blocks beside the new ones.  1: there
 * is memory for both; 0: there is none, and the coordinator was told so. */
static int
on_map(struct ps_join *j, const struct fal_map *map)
{
	struct fal_diag why;
	size_t n = values_of(j, &j->map);
	for (uint32_t i = j->first; i < j->first + j->count; i++)
		if (map->of[i].first != j->map.of[i].first ||
		    map->of[i].count != j->map.of[i].count)
			n += (size_t)map->of[i].count * FAL_BLOCK;
	const bool more = n > values_of(j, &j->map);
	int err = more ? afford(j, n, &why) : FAL_OK;
	if (err < 0) { /* the move never was */
		const struct fal_shard_say say = { .kind = FAL_SAY_MIGRATED,
						   .version = map->epoch,
						   .err = err,
						   .odd = why.text };
		return fal_shard_codec_say(j->incarnation, 0, &say, join_piece, j);
	}
	j->to = *map;
	return 1;
}

/* Acts on an order that the shards have heard. */
static int
after_order(struct ps_join *j, const struct fal_shard_order *o)
{
	if (o->kind == FAL_ORDER_MIGRATE_BEGIN) {
		int err = fal_shard_set_pieces(j->shard_set, give_piece, j);
		place_more(j);
		return err;
	}
	if (o->kind == FAL_ORDER_COMMIT && j->to.shards > 0) {
		const bool other = values_of(j, &j->to) != values_of(j, &j->map);
		j->map = j->to;
		ps_wants_moved(&j->wants);
		if (other)
			fal_cli_err(PROG, "%s: %s: has %zu of %u blocks from here on",
				    j->run->opt.join, j->job.name,
				    (values_of(j, &j->map) + FAL_BLOCK - 1) / FAL_BLOCK,
				    fal_blocks(j->model->params));
	}
	if (o->kind == FAL_ORDER_COMMIT || o->kind == FAL_ORDER_ABORT)
		j->to = (struct fal_map){ 0 };
	return o->kind == FAL_ORDER_ABORT ? image_queue_abort(&j->images) : FAL_OK;
}

static int
on_order(struct ps_join *j, const struct fal_msg *m)
{
	const uint32_t blocks = fal_blocks(j->model->params);
	struct fal_shard_order o = { 0 };
	struct fal_map map;
	struct fal_diag why;
	const uint64_t began = uv_hrtime();
	int err = fal_shard_codec_order_get(m, blocks, &map, &o);
	if (err == FAL_OK && o.kind == FAL_ORDER_MIGRATE_BEGIN) {
		err = on_map(j, o.map);
		if (err <= 0)
			return err;
		err = FAL_OK;
	}
	/* Another rule, or a coordinator that means ill, has more versions kept. */
	const uint32_t most = o.versions < FAL_KEPT_MAX ? o.versions : FAL_KEPT_MAX;
	if (err == FAL_OK && most > j->versions) {
		j->versions = most;
		err = afford(j, values_of(j, &j->map), &why);
	}
	if (err == FAL_OK)
		err = fal_shard_set_order(j->shard_set, &o);
	if (err == FAL_OK)
		err = after_order(j, &o);
	if (err == FAL_OK)
		place_speak(j);
	j->wants.served.service += uv_hrtime() - began;
	return err;
}

static int
on_publish(struct ps_join *j, const struct fal_msg *m)
{
	const uint32_t names = (uint32_t)(m->publish.named.n / 8);
	struct fal_rd r = fal_rd_init(m->publish.named.p, m->publish.named.n);
	struct ps_guest *g = guest_find(j, m->publish.session);
	uint64_t *named = fal_calloc((size_t)names + 1, sizeof(*named));
	if (named == NULL)
		return FAL_ENOMEM;
	for (uint32_t i = 0; i < names; i++)
		named[i] = fal_get_u64(&r);
	const struct fal_coord_model model = { .version = m->publish.version,
					       .newest = m->publish.newest,
					       .order = m->publish.order,
					       .oldest = m->publish.oldest,
					       .keep = m->publish.keep != 0,
					       .from = m->publish.from,
					       .named = named,
					       .names = names };
	int err = fal_rd_end(&r);
	if (err == FAL_OK && g != NULL)
		ps_wants_add(&j->wants, &g->reader, &model);
	free(named);
	return err == FAL_OK ? ps_wants_leave(&j->wants) : err;
}

/* The parameters that a shard has of a version, and the average; nothing, if it has it
 * no more. */
static int
params_of(struct ps_join *j, uint32_t shard, uint64_t version, struct fal_image *out)
{
	struct fal_shard_part part;
	struct fal_image live = { .is.version = version };
	if (!fal_shard_set_part(j->shard_set, shard, version, &part))
		return FAL_OK;
	const float *average = fal_shard_average(fal_shard_set_at(j->shard_set, shard));
	const size_t bytes = part.values * sizeof(float);
	fal_image_add(&live, "params", true, (void *)(uintptr_t)part.params, bytes);
	if (average != NULL)
		fal_image_add(&live, "average", true, (void *)(uintptr_t)average, bytes);
	int err = fal_image_copy(out, &live);
	fal_image_free(&live);
	return err;
}

static int
on_fetch(struct ps_join *j, const struct fal_msg *m)
{
	for (uint32_t i = 0; i < j->count; i++) {
		struct fal_shard *shard = fal_shard_set_at(j->shard_set, j->first + i);
		struct queued_image p = { .of = { .what = (enum fal_fetch)m->fetch.what,
						  .shard = i },
					  .image.is.version = m->fetch.version };
		if (shard == NULL) /* it has no block */
			continue;
		fal_shard_set_range(j->shard_set, j->first + i, &p.of.first, &p.of.count);
		if (p.of.what == FAL_FETCH_PARAMS &&
		    params_of(j, j->first + i, m->fetch.version, &p.image) < 0)
			return FAL_ENOMEM;
		if (p.of.what == FAL_FETCH_MARKED)
			(void)fal_shard_marked(shard, m->fetch.version, &p.image);
		image_queue_add(&j->images, &p);
	}
	place_more(j);
	return FAL_OK;
}

/* A message of the coordinator that is about what it was given.  0 or an error. */
static int
place_msg(struct ps_join *j, const struct fal_msg *m)
{
	const bool placed = j->shard_set != NULL && j->became == j->count;
	if (m->type == FAL_MSG_PLACE)
		return on_place(j, m);
	if (j->of == 0)
		return FAL_ESTATE;
	struct fal_msg pong = { .type = FAL_MSG_PONG, .pong.stamp = m->ping.stamp };
	switch (m->type) {
	case FAL_MSG_PING:
		join_say(j, &pong);
		return FAL_OK;
	case FAL_MSG_TEXT:
		return on_text(j, m);
	case FAL_MSG_IMAGE:
		return on_image(j, m);
	case FAL_MSG_BYTES:
		return graft(j, image_intake_add(&j->coming, m));
	case FAL_MSG_ORDER:
		return placed ? on_order(j, m) : FAL_ESTATE;
	case FAL_MSG_ADMIT:
		return placed ? guest_admit(j, m) : FAL_ESTATE;
	case FAL_MSG_DISMISS:
		guest_dismiss(j, m->dismiss.session);
		return FAL_OK;
	case FAL_MSG_PUBLISH:
		return placed ? on_publish(j, m) : FAL_ESTATE;
	case FAL_MSG_FETCH:
		return placed ? on_fetch(j, m) : FAL_ESTATE;
	default:
		return FAL_EFORMAT;
	}
}

/* ---- what workers say ------------------------------------------------------------- */

/* Ends a session that did what it may not. */
static void
refuse(struct ps_guest *g, const char *why)
{
	struct fal_msg m = { .type = FAL_MSG_REFUSE };
	snprintf(m.refuse.why, sizeof(m.refuse.why), "%s", why);
	ps_say(g->reader.chan, &m, FAL_SEND_CONTROL);
	fal_cli_err(PROG, "%s: refused: %s", fal_chan_name(g->reader.chan), why);
	fal_chan_close(g->reader.chan);
}

static int
guest_on_push(struct ps_guest *g, const struct fal_msg *m, struct fal_diag *why)
{
	struct ps_join *j = g->join;
	struct fal_ticket t;
	int err = fal_shard_set_ticket(j->shard_set, g->id, m, &t, why);
	if (err < 0)
		return err;
	const uint64_t began = uv_hrtime();
	ps_served_push(&j->wants.served, j->shard_set, &m->push.records);
	err = fal_shard_set_push(j->shard_set, &t, &m->push.records, why);
	if (err == FAL_ENOMEM) {
		join_end(j, FAL_EXIT_NO, fal_strerror(err));
		return FAL_OK;
	}
	/* The coordinator hears of a refusal, and charges the worker's key. */
	const struct fal_shard_say say = { .kind = FAL_SAY_REFUSED,
					   .round = t.round,
					   .id = t.id,
					   .err = err,
					   .odd = why->text };
	if (err < 0)
		(void)fal_shard_codec_say(j->incarnation, 0, &say, join_piece, j);
	place_speak(j);
	j->wants.served.service += uv_hrtime() - began;
	return FAL_OK;
}

static void
guest_on_msg(void *arg, struct fal_chan *c, const uint8_t *p, size_t n)
{
	struct ps_guest *g = arg;
	struct ps_join *j = g->join;
	struct fal_diag why = { "" };
	struct fal_msg m;
	(void)c;
	int err = fal_msg_get(p, n, &m);
	if (err < 0 || j->shard_set == NULL || m.incarnation != j->incarnation) {
		refuse(g, "a message that cannot be read");
	} else if (m.type == FAL_MSG_ATTACH) {
		j->near &= fal_chan_is_local(g->reader.chan);
		g->attached = true;
		place_speak(j);
	} else if (m.type != FAL_MSG_PUSH || !g->attached) {
		refuse(g, "a shard takes PUSH behind ATTACH alone");
	} else if (guest_on_push(g, &m, &why) < 0) {
		refuse(g, why.text);
	}
}

static void
guest_on_drain(void *arg, struct fal_chan *c)
{
	struct ps_guest *g = arg;
	(void)c;
	ps_wants_taken(&g->join->wants, &g->reader);
	place_speak(g->join);
}

static void
guest_on_close(void *arg, struct fal_chan *c, int err, const char *reason)
{
	struct ps_guest *g = arg;
	(void)c;
	(void)err;
	(void)reason;
	ps_wants_taken(&g->join->wants, &g->reader);
	g->reader.chan = NULL;
	join_parted(g->join);
}

static void
guest_accept(void *arg, struct fal_chan *c, const char *name, enum fal_role role)
{
	struct ps_join *j = arg;
	unsigned id = 0;
	struct ps_guest *g =
		sscanf(name, "session%u", &id) == 1 ? guest_find(j, id) : NULL;
	const struct fal_chan_ops ops = { .arg = g,
					  .on_msg = guest_on_msg,
					  .on_drain = guest_on_drain,
					  .on_close = guest_on_close };
	(void)role;
	if (g == NULL || g->reader.chan != NULL || j->parting) { /* it has one */
		fal_chan_kill(c);
		return;
	}
	g->attached = false;
	ps_reader_begin(&g->reader, c);
	fal_chan_adopt(c, &ops);
	fal_chan_compress(c, j->run->compress);
}

/* ---- the connection --------------------------------------------------------------- */

static void
on_open(void *arg, struct fal_chan *c)
{
	struct ps_join *j = arg;
	const struct ps_options *o = &j->run->opt;
	struct fal_msg m = { .type = FAL_MSG_JOIN };
	(void)c;
	j->open = true;
	j->incarnation = 0; /* not known before PLACE */
	m.join.schema = fal_msg_schema();
	snprintf(m.join.version, sizeof(m.join.version), "%s", fal_build());
	snprintf(m.join.address, sizeof(m.join.address), "%s",
		 fal_listen_text(j->listen));
	memcpy(m.join.public, fal_keyring_public(j->keys), sizeof(m.join.public));
	m.join.shards = (uint32_t)o->shards;
	m.join.standby = o->standby;
	memcpy(m.join.instance, j->run->instance, sizeof(m.join.instance));
	join_say(j, &m);
	if (fal_retry_reached(&j->run->retry, uv_hrtime()))
		fal_cli_err(PROG, "%s: connected again", o->join);
	else
		fal_cli_err(PROG, "%s: joined, listening on %s", o->join,
			    fal_listen_text(j->listen));
	fal_cli_notify("READY=1\nSTATUS=joined");
}

static void
on_parting(uv_timer_t *t)
{
	struct ps_join *j = t->data;
	join_end(j, FAL_EXIT_DONE, j->bye.text);
}

static void
on_msg(void *arg, struct fal_chan *c, const uint8_t *p, size_t n)
{
	struct ps_join *j = arg;
	struct fal_msg m;
	struct fal_diag why;
	(void)c;
	int err = fal_msg_get(p, n, &m);
	if (j->ending || j->parting)
		return;
	if (err == FAL_OK && m.type == FAL_MSG_DONE) {
		fal_diag_set(&j->bye, 0, "done: %s", m.done.why);
		/* Workers may wait for versions that are on their way. */
		j->parting = true;
		for (size_t i = 0; i < j->guests; i++)
			if (j->guest[i]->reader.chan != NULL)
				fal_chan_close(j->guest[i]->reader.chan);
		uv_timer_start(&j->timer, on_parting, PART_MS, 0);
		join_parted(j);
	} else if (err == FAL_OK && m.type == FAL_MSG_LATER) {
		fal_diag_set(&j->later, 0, "%s: %s", j->run->opt.join, m.later.why);
	} else if (err == FAL_OK && m.type == FAL_MSG_REFUSE) {
		fal_diag_set(&why, 0, "%s: refused: %s", j->run->opt.join, m.refuse.why);
		join_end(j, m.refuse.key != 0 ? FAL_EXIT_NOPERM : FAL_EXIT_NO, why.text);
	} else {
		err = err == FAL_OK ? place_msg(j, &m) : err;
		if (err < 0) {
			fal_diag_set(&why, 0, "%s: %s: %s", j->run->opt.join,
				     fal_msg_name(m.type), fal_strerror(err));
			join_end(j, FAL_EXIT_NO, why.text);
		}
	}
}

static void
on_room(void *arg, struct fal_chan *c)
{
	(void)c;
	place_more(arg);
}

static void
on_retry(uv_timer_t *t)
{
	dial(t->data);
}

static void
on_close(void *arg, struct fal_chan *c, int err, const char *reason)
{
	struct ps_join *j = arg;
	(void)c;
	j->chan = NULL;
	j->open = false;
	if (j->ending || j->parting)
		return;
	place_forget(j);
	const int code =
		fal_retry_after(&j->run->retry, PROG, err, reason, &j->later, false);
	if (code >= 0)
		join_end(j, code, reason);
	else
		uv_timer_start(&j->timer, on_retry,
			       fal_retry_pause_ms(&j->run->retry, uv_hrtime()), 0);
}

static void
dial(struct ps_join *j)
{
	const struct fal_chan_ops ops = { .arg = j,
					  .on_open = on_open,
					  .on_msg = on_msg,
					  .on_room = on_room,
					  .on_close = on_close };
	const struct fal_chan_opt opt = join_chan_opt(j);
	int err = fal_dial(&j->loop, &j->run->coordinator, j->run->key, &opt, &ops,
			   &j->chan);
	struct fal_diag why;
	if (err < 0) {
		fal_diag_set(&why, err, "%s: %s", j->run->opt.join, fal_strerror(err));
		join_end(j, err == FAL_EINVAL ? FAL_EXIT_USAGE : FAL_EXIT_NO, why.text);
	}
}

static void
on_signal(uv_signal_t *h, int signum)
{
	(void)signum;
	fal_cli_notify("STOPPING=1");
	join_end(h->data, FAL_EXIT_DONE, NULL);
}

/* Starts the process's listener, with a key of its own that nobody has seen before. */
static int
listen_for(struct ps_join *j, struct fal_diag *diag)
{
	const struct fal_listen_ops ops = { .arg = j, .on_accept = guest_accept };
	j->secret = fal_secret_alloc(FAL_KEY_BYTES);
	fal_random_bytes(j->secret, FAL_KEY_BYTES);
	(void)guest_keys(j); /* of nobody */
	struct fal_listen_opt listen = { .addr = &j->run->listen.v[0],
					 .keyring = j->keys,
					 .chan = join_chan_opt(j) };
	listen.chan.unseals = ps_may_unseal(&j->run->opt);
	int err = fal_listen_start(&j->loop, &listen, &ops, &j->listen, diag);
	const int fd = (int)j->run->opt.ready_fd - 1;
	return err < 0 || fd < 0 ? err
				 : fal_cli_ready(fd, fal_listen_text(j->listen), diag);
}

int
ps_run_join(struct ps_run *run)
{
	struct ps_join *j = fal_xcalloc(1, sizeof(*j));
	struct fal_diag diag = { "" };
	const int bad = uv_loop_init(&j->loop);
	if (bad < 0) {
		free(j);
		fal_diag_set(&diag, FAL_EIO, "%s", uv_strerror(bad));
		return ps_run_say(&diag, FAL_EIO);
	}
	signal(SIGPIPE, SIG_IGN);
	j->run = run;
	j->link = (struct fal_link){ .bandwidth = (double)run->opt.rate_limit,
				     .shared = &j->busy };
	run->retry.lost = uv_hrtime();
	fal_random_bytes(j->run->instance, sizeof(j->run->instance));
	uv_timer_init(&j->loop, &j->timer);
	uv_signal_init(&j->loop, &j->on_int);
	uv_signal_init(&j->loop, &j->on_term);
	j->timer.data = j->on_int.data = j->on_term.data = j;
	uv_signal_start(&j->on_int, on_signal, SIGINT);
	uv_signal_start(&j->on_term, on_signal, SIGTERM);
	int err = listen_for(j, &diag);
	if (err < 0)
		join_end(j, fal_cli_exit(err), diag.text);
	else
		dial(j);
	uv_run(&j->loop, UV_RUN_DEFAULT);
	ps_close(&j->on_int);
	ps_close(&j->on_term);
	uv_run(&j->loop, UV_RUN_DEFAULT);
	uv_loop_close(&j->loop);
	ps_wants_free(&j->wants);
	const int code = j->code;
	fal_keyring_free(j->keys);
	fal_secret_free(j->secret);
	free(j->guest);
	image_queue_free(&j->images);
	free(j);
	return code;
}
