/* A process of shards for the job of another coordinator (falcon-ps --join): the
 * connection to the coordinator, the part of the job that the coordinator gives to this
 * process, and the sessions of workers.  A worker opens its session with a key that the
 * coordinator gave to both sides. */
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
	DRAINED_MS = 10000, /* for workers to take what was sent, after a drain */
	KEY_LINE = 32 + FAL_KEY_TEXT, /* bytes of a line of the keyring, at most */
	CODE_BYTES = 1 << 20, /* of code and streams, beyond fal_memory_now: measured */
};

/* A worker's session with the coordinator. */
struct worker_session {
	struct shard_server *server;
	uint32_t id;
	uint8_t *psk; /* in locked memory */
	bool is_attached;
	struct ps_reader reader; /* its channel, once it has connected */
};

/* The part of a job that this process has, from PLACE on.  {0}: none. */
struct shard_part {
	uint32_t incarnation, first, count, tasks;
	uint32_t all_shards; /* of the job; 0: there is no part */
	struct fal_ticket_scope tickets;
	uint8_t map_bytes[FAL_SHARDS_MAX * sizeof(struct fal_extent)]; /* of PLACE */
	size_t map_n;
	struct fal_job job;
	struct fal_model *model;
	struct fal_shard_set *shard_set; /* NULL: the texts are not here yet */
	uint32_t n_complete;             /* shards that have all of their blocks */
	uint32_t versions;               /* to keep, at most so far */
	uint64_t memory;                 /* bytes that were logged last */
	bool workers_are_local;          /* all workers so far were on this machine */
	struct fal_map map, next_map; /* next_map: of the move under way, else 0 shards */
	struct image_intake intake;
	struct image_queue outgoing;
	struct ps_broadcast broadcast;
};

struct shard_server {
	struct ps_run *run;
	uv_loop_t loop;
	uv_timer_t timer; /* for the end */
	uv_signal_t on_int, on_term;
	struct fal_listen *listen;
	struct fal_link link; /* for all sent bytes, with --rate-limit */
	uint64_t busy;        /* of the link */
	struct fal_keyring *keys;
	uint8_t *secret; /* its own static key, in locked memory */
	struct fal_client client;
	enum shard_server_state {
		SHARD_SERVER_RUNS,
		SHARD_SERVER_DRAINED, /* drained: workers still take sent messages */
		SHARD_SERVER_ENDS
	} state;
	int code;
	uint64_t program; /* bytes of the process, before it had shards */
	struct worker_session **worker;
	size_t n_workers, workers_cap;
	struct shard_part part;
};

/* The options of all channels. */
static struct fal_chan_opt
chan_options(const struct shard_server *s)
{
	return (struct fal_chan_opt){ .link = s->link.bandwidth > 0 ? &s->link : NULL };
}

/* A fal_shard_codec_each: sends a piece of a REPORT to the coordinator.  A piece is lost
 * only with the connection, which ends the incarnation. */
static int
send_report_piece(void *server, const struct fal_buf *msg)
{
	struct shard_server *s = server;
	fal_client_send_bytes(&s->client, msg, FAL_SEND_CONTROL);
	return FAL_OK;
}

/* Sends a report to the coordinator. */
static void
part_report(struct shard_server *s, const struct fal_shard_report *report)
{
	if (fal_shard_codec_report(s->part.incarnation, report, send_report_piece, s) < 0)
		fal_out_of_memory();
}

/* ---- workers' sessions --- */

static struct worker_session *
worker_find(const struct shard_server *s, uint32_t id)
{
	for (size_t i = 0; i < s->n_workers; i++)
		if (s->worker[i]->id == id)
			return s->worker[i];
	return NULL;
}

/* Makes the listener's keyring from the keys of the admitted workers.  FAL_ELIMIT: there
 * are too many workers; FAL_EFORMAT: a key is invalid. */
static int
workers_update_keyring(struct shard_server *s)
{
	const size_t most = (s->n_workers + 1) * KEY_LINE;
	char *text = fal_secret_alloc(most);
	char *key = fal_secret_alloc(FAL_KEY_TEXT + 1);
	struct fal_keyring *fresh = NULL;
	fal_key_encode(s->secret, key);
	size_t n = (size_t)snprintf(text, most, "shard self %s\n", key);
	for (size_t i = 0; i < s->n_workers; i++) {
		fal_key_encode(s->worker[i]->psk, key);
		n += (size_t)snprintf(text + n, most - n, "session%u work %s\n",
				      s->worker[i]->id, key);
	}
	const int err = fal_keyring_parse(text, n, "sessions", &fresh, NULL);
	fal_secret_free(text);
	fal_secret_free(key);
	if (err < 0)
		return err;
	if (s->listen != NULL)
		fal_listen_keyring(s->listen, fresh);
	fal_keyring_free(s->keys);
	s->keys = fresh;
	return FAL_OK;
}

static void
worker_free(struct worker_session *w)
{
	if (w->reader.chan != NULL)
		fal_chan_kill(w->reader.chan);
	ps_reader_detach(&w->server->part.broadcast, &w->reader);
	fal_secret_key_free(w->psk);
	free(w);
}

/* ADMIT: a worker will connect, with this key.  FAL_ESTATE: the worker was admitted
 * before; else errors of workers_update_keyring. */
static int
worker_admit(struct shard_server *s, const struct fal_msg *m)
{
	struct fal_msg known = { .type = FAL_MSG_ADMITTED,
				 .admitted.session = m->admit.session };
	if (worker_find(s, m->admit.session) != NULL)
		return FAL_ESTATE;
	struct worker_session *w = fal_xcalloc(1, sizeof(*w));
	w->server = s;
	w->id = m->admit.session;
	w->psk = fal_secret_key();
	memcpy(w->psk, m->admit.psk, FAL_KEY_BYTES);
	FAL_XGROW(s->worker, s->workers_cap, s->n_workers + 1);
	s->worker[s->n_workers++] = w;
	const int err = workers_update_keyring(s);
	if (err == FAL_OK)
		fal_client_send(&s->client, &known);
	return err;
}

/* ---- the end --- */

/* Drops the part and its workers: the coordinator is gone. */
static void
part_clear(struct shard_server *s)
{
	struct shard_part *p = &s->part;
	while (s->n_workers > 0)
		worker_free(s->worker[--s->n_workers]);
	(void)workers_update_keyring(s); /* without workers */
	ps_broadcast_clear(&p->broadcast);
	fal_shard_set_free(p->shard_set);
	p->shard_set = NULL;
	fal_model_free(p->model);
	p->model = NULL;
	fal_job_free(&p->job);
	fal_image_free(&p->intake.image);
	p->intake.is_active = false;
	image_queue_clear(&p->outgoing);
	fal_secret_wipe(&p->tickets, sizeof(p->tickets));
	p->all_shards = p->n_complete = p->versions = 0;
	p->memory = 0;
	p->map = p->next_map = (struct fal_map){ 0 };
}

/* Ends the process with this exit code.  Logs `why`, unless it is NULL. */
static void
end_server(struct shard_server *s, int code, const char *why)
{
	if (s->state == SHARD_SERVER_ENDS)
		return;
	if (why != NULL)
		fal_cli_err(PROG, "%s", why);
	s->state = SHARD_SERVER_ENDS;
	s->code = code;
	fal_client_end(&s->client, code);
	part_clear(s);
	fal_listen_close(s->listen);
	s->listen = NULL;
	ps_close_handle(&s->timer);
	/* Another signal changes nothing. */
	uv_unref((uv_handle_t *)&s->on_int);
	uv_unref((uv_handle_t *)&s->on_term);
}

/* Ends a drained process when the workers have taken all sent messages. */
static void
end_if_drained(struct shard_server *s)
{
	size_t i = 0;
	while (i < s->n_workers && s->worker[i]->reader.chan == NULL)
		i++;
	if (s->state == SHARD_SERVER_DRAINED && i == s->n_workers)
		end_server(s, FAL_EXIT_DONE, NULL);
}

/* ---- sending --- */

/* Sends the wanted versions to workers.  A lack of memory ends the process. */
static void
part_send_versions(struct shard_server *s)
{
	const int err = ps_broadcast_send(&s->part.broadcast);
	if (err < 0)
		end_server(s, FAL_EXIT_NO, fal_strerror(err));
}

/* Sends the reports to the coordinator, and frees them; SERVED before the report of a new
 * version.  Then sends versions. */
static void
part_send_result(struct shard_server *s, struct fal_shard_result *r)
{
	for (size_t i = 0; i < r->n; i++) {
		if (r->v[i].kind == FAL_REPORT_STEPPED) {
			struct fal_msg m;
			struct fal_buf rows = { 0 };
			ps_shard_stats_put(&s->part.broadcast.stats, s->part.first,
					   s->part.count, &m, &rows);
			fal_client_send(&s->client, &m);
			fal_buf_free(&rows);
		}
		part_report(s, &r->v[i]);
	}
	fal_shard_result_free(r);
	part_send_versions(s);
}

/* Gives the memory of a sent image back to the image's shard, for the next mark. */
static void
part_on_image_sent(void *arg, struct queued_image *p)
{
	const struct shard_server *s = arg;
	if (p->of.what != FAL_FETCH_MARKED || p->image.arrays == 0)
		return;
	struct fal_shard *shard =
		fal_shard_set_shard(s->part.shard_set, s->part.first + p->of.shard);
	if (shard != NULL)
		fal_shard_recycle_image(shard, &p->image);
}

static void
part_send_images(struct shard_server *s)
{
	image_queue_send(&s->part.outgoing, s->part.incarnation, s->client.chan,
			 part_on_image_sent, s);
}

/* ---- messages of the coordinator about the part --- */

static int
part_on_place(struct shard_server *s, const struct fal_msg *m)
{
	struct shard_part *p = &s->part;
	if (p->all_shards > 0 || m->place.of > FAL_SHARDS_MAX || m->place.count < 1 ||
	    m->place.first >= m->place.of ||
	    m->place.count > m->place.of - m->place.first)
		return FAL_ESTATE;
	const uint32_t size[FAL_TEXTS] = {
		[FAL_TEXT_JOB] = m->place.job_n, [FAL_TEXT_MODEL] = m->place.model_n
	};
	int err = fal_texts_begin(&s->client.texts, size);
	if (err < 0)
		return err;
	p->incarnation = s->client.incarnation = m->incarnation;
	p->all_shards = m->place.of;
	p->first = m->place.first;
	p->count = m->place.count;
	p->tasks = m->place.tasks;
	p->tickets = (struct fal_ticket_scope){ .epoch = m->place.epoch,
						.incarnation = m->incarnation };
	memcpy(p->tickets.key, m->place.key, sizeof(p->tickets.key));
	if (m->place.map.n > sizeof(p->map_bytes))
		return FAL_ELIMIT;
	p->map_n = m->place.map.n;
	if (p->map_n > 0)
		memcpy(p->map_bytes, m->place.map.p, p->map_n);
	return FAL_OK;
}

/* The number of values that the process's shards have by a map. */
static size_t
part_count_values(const struct shard_server *s, const struct fal_map *map)
{
	size_t n = 0;
	for (uint32_t i = s->part.first; i < s->part.first + s->part.count; i++)
		n += (size_t)map->of[i].count * FAL_BLOCK;
	return n < s->part.model->params ? n : s->part.model->params;
}

/* Checks the memory for n values, and logs the memory if it has grown.  FAL_ELIMIT with
 * `why`. */
static int
part_check_memory(struct shard_server *s, size_t n, struct fal_diag *why)
{
	struct shard_part *p = &s->part;
	struct fal_shard_set_conf part = {
		.shards = 1, .each = fal_files_shard_conf(&p->job, p->model, p->tasks)
	};
	part.each.n = n;
	if (s->program == 0)
		s->program = fal_memory_now(
			CODE_BYTES + fal_threads_bytes((uint32_t)s->run->opt.threads));
	const struct ps_shard_memory_inputs of = {
		.program = s->program,
		.shard_set = &part,
		.rule = &p->job.rule,
		.workers = s->n_workers > 0 ? s->n_workers : 1,
		.versions = p->versions,
		.is_mixed = ps_listens_on_tcp(&s->run->listen)
	};
	const uint64_t need = ps_estimate_shard_memory(&of);
	const bool more = need > p->memory;
	p->memory = need;
	if (n > 0 && more)
		fal_cli_err(PROG, "%s: shards %u to %u of %u need %" PRIu64 " MiB",
			    p->job.name, p->first + 1, p->first + p->count, p->all_shards,
			    fal_memory_mib(need));
	int err = fal_memory_check(need, 0, s->run->opt.max_memory, why);
	if (err < 0)
		fal_cli_err(PROG, "%s", why->text);
	return err;
}

/* Tells the coordinator that the process has all of its blocks: none, if the process has
 * joined a running job. */
static void
part_report_placed(struct shard_server *s)
{
	struct shard_part *p = &s->part;
	struct fal_msg placed = { .type = FAL_MSG_PLACED,
				  .placed.epoch = p->tickets.epoch };
	const bool any = part_count_values(s, &p->map) > 0;
	p->n_complete = p->count;
	fal_client_send(&s->client, &placed);
	fal_cli_err(PROG, "%s: %s: %s shards %u to %u of %u%s", s->run->opt.join,
		    p->job.name, any ? "has" : "is", p->first + 1, p->first + p->count,
		    p->all_shards, any ? "" : ", without blocks yet");
}

/* Makes the shards: the texts of job and model are here. */
static int
part_create(void *server, struct fal_client *c)
{
	struct shard_server *s = server;
	struct shard_part *p = &s->part;
	const struct fal_buf *text = c->texts.text;
	const struct fal_setup_text job = { "job", text[FAL_TEXT_JOB].p,
					    text[FAL_TEXT_JOB].n },
				    model = { "model", text[FAL_TEXT_MODEL].p,
					      text[FAL_TEXT_MODEL].n };
	struct fal_diag diag = { "" };
	int err = fal_setup_parse(&job, &model, &p->job, &p->model, &diag);
	if (err < 0) {
		fal_cli_err(PROG, "%s",
			    diag.text[0] != '\0' ? diag.text : fal_strerror(err));
		return err;
	}
	const struct fal_tail cut = { p->map_bytes, p->map_n };
	struct fal_map map;
	err = fal_map_get(&cut, p->tickets.epoch, fal_blocks(p->model->params), &map);
	if (err < 0 || map.shards != p->all_shards)
		return FAL_EFORMAT;
	/* Either each of the process's shards has blocks, or none has. */
	uint32_t with = 0;
	for (uint32_t i = p->first; i < p->first + p->count; i++)
		with += map.of[i].count > 0;
	if (with != 0 && with != p->count)
		return FAL_EFORMAT;
	/* The blocks come as in a move, from a map by which no shard has any. */
	const struct fal_map none = { .epoch = map.epoch, .shards = map.shards };
	const struct fal_shard_order begin = { .kind = FAL_ORDER_MIGRATE_BEGIN,
					       .map = &map };
	struct fal_shard_set_conf conf = { .map = with > 0 ? &none : &map,
					   .first = p->first,
					   .here = p->count,
					   .tickets = p->tickets,
					   .each = fal_files_shard_conf(&p->job, p->model,
									p->tasks) };
	conf.each.parallel = fal_threads_parallel(s->run->threads);
	conf.each.at_once = &p->workers_are_local;
	p->workers_are_local = true;
	p->map = map;
	err = part_check_memory(s, part_count_values(s, &map), &diag);
	if (err < 0)
		return err;
	p->shard_set = fal_shard_set_new(&conf, NULL);
	if (p->shard_set == NULL)
		return FAL_ENOMEM;
	p->broadcast.publisher.shard_set = p->shard_set;
	p->broadcast.publisher.parallel = conf.each.parallel;
	p->broadcast.publisher.sends_whole = p->job.placement == FAL_JOB_PLACEMENT_PSLD;
	p->broadcast.publisher.incarnation = p->incarnation;
	p->broadcast.publisher.rule = p->job.rule;
	p->broadcast.publisher.is_mixed = ps_listens_on_tcp(&s->run->listen);
	fal_hash(job.p, job.n, p->broadcast.publisher.job_hash);
	if (with > 0)
		return fal_shard_set_order(p->shard_set, &begin, NULL);
	part_report_placed(s);
	return FAL_OK;
}

/* Adds the image that is complete, if `got` is 1, to its shard; else returns `got`. */
static int
part_add_piece(struct shard_server *s, int got)
{
	struct shard_part *p = &s->part;
	const struct fal_shard_codec_of *of = &p->intake.of;
	const struct fal_shard_set_piece piece = { of->epoch, of->first, of->count,
						   p->intake.image };
	const struct fal_shard_order commit = { .kind = FAL_ORDER_COMMIT };
	struct fal_shard_result r = { 0 };
	if (got != 1)
		return got;
	int err = fal_shard_set_graft(p->shard_set, of->shard, &piece, &r);
	fal_image_free(&p->intake.image);
	if (p->n_complete == p->count) { /* the piece is of a move */
		part_send_result(s, &r);
		return err;
	}
	p->n_complete += (uint32_t)r.n;
	fal_shard_result_free(&r);
	if (err < 0 || p->n_complete < p->count)
		return err;
	err = fal_shard_set_order(p->shard_set, &commit, NULL);
	if (err == FAL_OK)
		part_report_placed(s);
	return err;
}

/* A callback of fal_shard_set_each_piece: queues a piece for a shard elsewhere, by way of
 * the coordinator, and takes its image. */
static int
part_queue_piece(void *server, uint32_t to, struct fal_shard_set_piece *piece)
{
	struct shard_server *s = server;
	image_queue_add_piece(&s->part.outgoing, to, piece);
	return FAL_OK;
}

/* The shards have taken the order: does the rest of its work. */
static int
part_after_order(struct shard_server *s, const struct fal_shard_order *o)
{
	struct shard_part *p = &s->part;
	if (o->kind == FAL_ORDER_MIGRATE_BEGIN) {
		int err = fal_shard_set_each_piece(p->shard_set, part_queue_piece, s);
		part_send_images(s);
		return err;
	}
	if (o->kind == FAL_ORDER_COMMIT && p->next_map.shards > 0) {
		const bool other = part_count_values(s, &p->next_map) !=
				   part_count_values(s, &p->map);
		p->map = p->next_map;
		ps_broadcast_reset(&p->broadcast);
		if (other)
			fal_cli_err(PROG, "%s: %s: has %zu of %u blocks from here on",
				    s->run->opt.join, p->job.name,
				    (part_count_values(s, &p->map) + FAL_BLOCK - 1) /
					    FAL_BLOCK,
				    fal_blocks(p->model->params));
	}
	if (o->kind == FAL_ORDER_COMMIT || o->kind == FAL_ORDER_ABORT)
		p->next_map = (struct fal_map){ 0 };
	return o->kind == FAL_ORDER_ABORT ? image_queue_abort(&p->outgoing) : FAL_OK;
}

static int
part_on_order(struct shard_server *s, const struct fal_msg *m)
{
	struct shard_part *p = &s->part;
	const uint32_t blocks = fal_blocks(p->model->params);
	struct fal_shard_order o = { 0 };
	struct fal_map map;
	struct fal_diag why;
	struct fal_shard_result r = { 0 };
	const uint64_t began = uv_hrtime();
	int err = fal_shard_codec_order_get(m, blocks, &map, &o);
	if (err == FAL_OK && o.kind == FAL_ORDER_MIGRATE_BEGIN) {
		/* During the move the process has both its old and its new blocks.
		 * Without memory for both, the process tells the coordinator. */
		const size_t has = part_count_values(s, &p->map);
		size_t n = has;
		for (uint32_t i = p->first; i < p->first + p->count; i++)
			if (o.map->of[i].first != p->map.of[i].first ||
			    o.map->of[i].count != p->map.of[i].count)
				n += (size_t)o.map->of[i].count * FAL_BLOCK;
		const int refusal = n > has ? part_check_memory(s, n, &why) : FAL_OK;
		if (refusal < 0) { /* this process has no part in the move */
			part_report(s, &(struct fal_shard_report){
					       .kind = FAL_REPORT_MIGRATED,
					       .shard = p->first,
					       .version = o.map->epoch,
					       .err = refusal,
					       .odd = why.text });
			return FAL_OK;
		}
		p->next_map = *o.map;
	}
	/* Another rule, or a hostile coordinator, may keep more versions. */
	const uint32_t most = o.versions < FAL_KEPT_MAX ? o.versions : FAL_KEPT_MAX;
	if (err == FAL_OK && most > p->versions) {
		p->versions = most;
		err = part_check_memory(s, part_count_values(s, &p->map), &why);
	}
	if (err == FAL_OK)
		err = fal_shard_set_order(p->shard_set, &o, &r);
	if (err == FAL_OK)
		err = part_after_order(s, &o);
	part_send_result(s, &r);
	p->broadcast.stats.service += uv_hrtime() - began;
	return err;
}

static int
part_on_publish(struct shard_server *s, const struct fal_msg *m)
{
	const uint32_t names = (uint32_t)(m->publish.named.n / 8);
	struct fal_rd r = fal_rd_init(m->publish.named.p, m->publish.named.n);
	struct worker_session *w = worker_find(s, m->publish.session);
	uint64_t *named = fal_calloc((size_t)names + 1, sizeof(*named));
	if (named == NULL)
		return FAL_ENOMEM;
	for (uint32_t i = 0; i < names; i++)
		named[i] = fal_get_u64(&r);
	const struct fal_coord_publication model = { .version = m->publish.version,
						     .newest = m->publish.newest,
						     .order = m->publish.order,
						     .oldest = m->publish.oldest,
						     .keep = m->publish.keep != 0,
						     .from = m->publish.from,
						     .named = named,
						     .names = names };
	int err = fal_rd_end(&r);
	if (err == FAL_OK && w != NULL)
		ps_broadcast_add(&s->part.broadcast, &w->reader, &model);
	free(named);
	return err == FAL_OK ? ps_broadcast_send(&s->part.broadcast) : err;
}

static int
part_on_fetch(struct shard_server *s, const struct fal_msg *m)
{
	for (uint32_t i = 0; i < s->part.count; i++) {
		struct fal_shard *shard =
			fal_shard_set_shard(s->part.shard_set, s->part.first + i);
		struct queued_image p = { .of = { .what = (enum fal_fetch)m->fetch.what,
						  .shard = i },
					  .image.is.version = m->fetch.version };
		if (shard == NULL) /* without blocks */
			continue;
		fal_shard_set_range(s->part.shard_set, s->part.first + i, &p.of.first,
				    &p.of.count);
		/* Copies nothing if the shard has dropped the version. */
		struct fal_shard_part part;
		if (p.of.what == FAL_FETCH_PARAMS &&
		    fal_shard_set_part(s->part.shard_set, s->part.first + i,
				       m->fetch.version, &part)) {
			struct fal_image live = { .is.version = m->fetch.version };
			const float *average = fal_shard_average(shard);
			const size_t bytes = part.values * sizeof(float);
			fal_image_add(&live, "params", true,
				      (void *)(uintptr_t)part.params, bytes);
			if (average != NULL)
				fal_image_add(&live, "average", true,
					      (void *)(uintptr_t)average, bytes);
			const int err = fal_image_copy(&p.image, &live);
			fal_image_free(&live);
			if (err < 0)
				return FAL_ENOMEM;
		}
		if (p.of.what == FAL_FETCH_MARKED)
			(void)fal_shard_take_marked(shard, m->fetch.version, &p.image);
		image_queue_add(&s->part.outgoing, &p);
	}
	part_send_images(s);
	return FAL_OK;
}

/* Handles a message about the part.  An error ends the process. */
static int
part_on_msg(void *server, struct fal_client *c, const struct fal_msg *m)
{
	struct shard_server *s = server;
	struct shard_part *p = &s->part;
	const bool placed = p->shard_set != NULL && p->n_complete == p->count;
	if (m->type == FAL_MSG_PLACE)
		return part_on_place(s, m);
	if (p->all_shards == 0)
		return FAL_ESTATE;
	struct fal_msg pong = { .type = FAL_MSG_PONG, .pong.stamp = m->ping.stamp };
	(void)c;
	switch (m->type) {
	case FAL_MSG_PING:
		fal_client_send(&s->client, &pong);
		return FAL_OK;
	case FAL_MSG_IMAGE:
		if (p->shard_set == NULL || p->intake.is_active ||
		    m->image.what != FAL_FETCH_PIECE || m->image.blocks < 1 ||
		    m->image.blocks > fal_blocks(p->model->params) ||
		    m->image.shard - p->first >= p->count || m->image.arrays.n == 0)
			return FAL_ESTATE;
		return part_add_piece(s,
				      image_intake_begin(&p->intake, m, m->image.blocks));
	case FAL_MSG_BYTES:
		return part_add_piece(s, image_intake_add(&p->intake, m));
	case FAL_MSG_ORDER:
		return placed ? part_on_order(s, m) : FAL_ESTATE;
	case FAL_MSG_ADMIT:
		return placed ? worker_admit(s, m) : FAL_ESTATE;
	case FAL_MSG_DISMISS:
		for (size_t i = 0; i < s->n_workers; i++)
			if (s->worker[i]->id == m->dismiss.session) {
				worker_free(s->worker[i]);
				s->worker[i] = s->worker[--s->n_workers];
				(void)workers_update_keyring(s); /* others are valid */
				break;
			}
		return FAL_OK;
	case FAL_MSG_PUBLISH:
		return placed ? part_on_publish(s, m) : FAL_ESTATE;
	case FAL_MSG_FETCH:
		return placed ? part_on_fetch(s, m) : FAL_ESTATE;
	default:
		return FAL_EFORMAT;
	}
}

/* ---- messages of workers --- */

/* Ends a worker's session that did something forbidden. */
static void
worker_refuse(struct worker_session *w, const char *why)
{
	struct fal_msg m = { .type = FAL_MSG_REFUSE };
	snprintf(m.refuse.why, sizeof(m.refuse.why), "%s", why);
	ps_send_or_close(w->reader.chan, &m, FAL_SEND_CONTROL);
	fal_cli_err(PROG, "%s: refused: %s", fal_chan_name(w->reader.chan), why);
	fal_chan_close(w->reader.chan);
}

static int
worker_on_push(struct worker_session *w, const struct fal_msg *m, struct fal_diag *why)
{
	struct shard_server *s = w->server;
	struct fal_ticket t;
	int err = fal_shard_set_ticket(s->part.shard_set, w->id, m, &t, why);
	if (err < 0)
		return err;
	struct fal_shard_result r = { 0 };
	const uint64_t began = uv_hrtime();
	ps_shard_stats_add_push(&s->part.broadcast.stats, s->part.shard_set,
				&m->push.records);
	err = fal_shard_set_push(s->part.shard_set, &t, &m->push.records, &r, why);
	if (err == FAL_ENOMEM) {
		fal_shard_result_free(&r);
		end_server(s, FAL_EXIT_NO, fal_strerror(err));
		return FAL_OK;
	}
	/* The coordinator hears of a refusal, and charges the worker's key. */
	if (err < 0)
		part_report(s, &(struct fal_shard_report){ .kind = FAL_REPORT_REFUSED,
							   .shard = s->part.first,
							   .round = t.round,
							   .id = t.id,
							   .err = err,
							   .odd = why->text });
	part_send_result(s, &r);
	s->part.broadcast.stats.service += uv_hrtime() - began;
	return FAL_OK;
}

static void
worker_on_msg(void *arg, struct fal_chan *c, const uint8_t *p, size_t n)
{
	struct worker_session *w = arg;
	struct shard_server *s = w->server;
	struct fal_diag why = { "" };
	struct fal_msg m;
	(void)c;
	int err = fal_msg_get(p, n, &m);
	if (err < 0 || s->part.shard_set == NULL ||
	    m.incarnation != s->part.incarnation) {
		worker_refuse(w, "a message that cannot be read");
	} else if (m.type == FAL_MSG_ATTACH) {
		s->part.workers_are_local &= fal_chan_is_local(w->reader.chan);
		w->is_attached = true;
		part_send_versions(s);
	} else if (m.type != FAL_MSG_PUSH || !w->is_attached) {
		worker_refuse(w, "a shard takes ATTACH, then PUSH, and nothing else");
	} else if (worker_on_push(w, &m, &why) < 0) {
		worker_refuse(w, why.text);
	}
}

static void
worker_on_drain(void *arg, struct fal_chan *c)
{
	struct worker_session *w = arg;
	(void)c;
	ps_broadcast_note_drained(&w->server->part.broadcast, &w->reader);
	part_send_versions(w->server);
}

static void
worker_on_close(void *arg, struct fal_chan *c, int err, const char *reason)
{
	struct worker_session *w = arg;
	(void)c;
	(void)err;
	(void)reason;
	ps_broadcast_note_drained(&w->server->part.broadcast, &w->reader);
	w->reader.chan = NULL;
	end_if_drained(w->server);
}

static void
worker_on_accept(void *arg, struct fal_chan *c, const char *name, enum fal_role role)
{
	struct shard_server *s = arg;
	unsigned id = 0;
	struct worker_session *w =
		sscanf(name, "session%u", &id) == 1 ? worker_find(s, id) : NULL;
	const struct fal_chan_ops ops = { .arg = w,
					  .on_msg = worker_on_msg,
					  .on_drain = worker_on_drain,
					  .on_close = worker_on_close };
	(void)role;
	if (w == NULL || w->reader.chan != NULL ||
	    s->state != SHARD_SERVER_RUNS) { /* a worker has one channel */
		fal_chan_kill(c);
		return;
	}
	w->is_attached = false;
	ps_reader_attach(&w->reader, c);
	fal_chan_set_ops(c, &ops);
	fal_chan_compress(c, s->run->compress);
}

/* ---- the connection --- */

static void
coord_on_open(void *arg, struct fal_client *c)
{
	struct shard_server *s = arg;
	const struct ps_options *o = &s->run->opt;
	struct fal_msg m = { .type = FAL_MSG_JOIN };
	m.join.schema = fal_msg_schema();
	snprintf(m.join.version, sizeof(m.join.version), "%s", fal_build());
	snprintf(m.join.address, sizeof(m.join.address), "%s",
		 fal_listen_addr_text(s->listen));
	memcpy(m.join.public, fal_keyring_public(s->keys), sizeof(m.join.public));
	m.join.shards = (uint32_t)o->shards;
	m.join.standby = o->standby;
	memcpy(m.join.instance, s->run->instance, sizeof(m.join.instance));
	fal_client_send(c, &m);
	/* The join counts as admitted now, because PLACE may come much later. */
	if (!fal_client_reached(c))
		fal_cli_err(PROG, "%s: joined, listening on %s", c->at,
			    fal_listen_addr_text(s->listen));
	fal_cli_notify("READY=1\nSTATUS=joined");
}

static void
on_drain_deadline(uv_timer_t *t)
{
	end_server(t->data, FAL_EXIT_DONE, NULL);
}

static void
coord_on_room(void *arg)
{
	part_send_images(arg);
}

static void
coord_on_close(void *arg, struct fal_client *c, int code)
{
	struct shard_server *s = arg;
	if (s->state != SHARD_SERVER_RUNS)
		return;
	if (code == FAL_EXIT_DONE) {
		/* Workers may wait for versions that are on their way. */
		s->state = SHARD_SERVER_DRAINED;
		for (size_t i = 0; i < s->n_workers; i++)
			if (s->worker[i]->reader.chan != NULL)
				fal_chan_close(s->worker[i]->reader.chan);
		uv_timer_start(&s->timer, on_drain_deadline, DRAINED_MS, 0);
		end_if_drained(s);
		return;
	}
	part_clear(s);
	if (code >= 0)
		end_server(s, code, NULL);
	else
		fal_client_retry(c, false);
}

static void
shard_server_on_signal(uv_signal_t *h, int signum)
{
	(void)signum;
	fal_cli_notify("STOPPING=1");
	end_server(h->data, FAL_EXIT_DONE, NULL);
}

/* Starts the listener for workers, with a new static key. */
static int
listen_for_workers(struct shard_server *s, struct fal_diag *diag)
{
	const struct fal_listen_ops ops = { .arg = s, .on_accept = worker_on_accept };
	s->secret = fal_secret_alloc(FAL_KEY_BYTES);
	fal_random_bytes(s->secret, FAL_KEY_BYTES);
	(void)workers_update_keyring(s); /* without workers */
	struct fal_listen_opt listen = { .addr = &s->run->listen.v[0],
					 .keyring = s->keys,
					 .chan = chan_options(s) };
	listen.chan.unseals = ps_allows_unsealed(&s->run->opt);
	int err = fal_listen_start(&s->loop, &listen, &ops, &s->listen, diag);
	const int fd = (int)s->run->opt.ready_fd - 1;
	return err < 0 || fd < 0
		       ? err
		       : fal_cli_write_ready(fd, fal_listen_addr_text(s->listen), diag);
}

int
ps_run_shard_server(struct ps_run *run)
{
	struct shard_server *s = fal_xcalloc(1, sizeof(*s));
	struct fal_diag diag = { "" };
	const int bad = uv_loop_init(&s->loop);
	if (bad < 0) {
		free(s);
		fal_diag_set(&diag, FAL_EIO, "%s", uv_strerror(bad));
		return ps_report_error(&diag, FAL_EIO);
	}
	signal(SIGPIPE, SIG_IGN);
	s->run = run;
	s->link = (struct fal_link){ .bandwidth = (double)run->opt.rate_limit,
				     .shared = &s->busy };
	run->retry.lost = uv_hrtime();
	fal_random_bytes(s->run->instance, sizeof(s->run->instance));
	uv_timer_init(&s->loop, &s->timer);
	uv_signal_init(&s->loop, &s->on_int);
	uv_signal_init(&s->loop, &s->on_term);
	s->timer.data = s->on_int.data = s->on_term.data = s;
	const struct fal_client_conf conf = { .prog = PROG,
					      .loop = &s->loop,
					      .addr = &run->coordinator,
					      .addrs = 1,
					      .key = run->key,
					      .retry = &run->retry,
					      .chan = chan_options(s),
					      .arg = s,
					      .on_open = coord_on_open,
					      .on_msg = part_on_msg,
					      .on_job = part_create,
					      .on_room = coord_on_room,
					      .on_close = coord_on_close };
	fal_client_init(&s->client, &conf);
	uv_signal_start(&s->on_int, shard_server_on_signal, SIGINT);
	uv_signal_start(&s->on_term, shard_server_on_signal, SIGTERM);
	int err = listen_for_workers(s, &diag);
	if (err < 0)
		end_server(s, fal_cli_exit_code(err), diag.text);
	else
		fal_client_retry(&s->client, true);
	uv_run(&s->loop, UV_RUN_DEFAULT);
	ps_close_handle(&s->on_int);
	ps_close_handle(&s->on_term);
	uv_run(&s->loop, UV_RUN_DEFAULT);
	uv_loop_close(&s->loop);
	ps_broadcast_free(&s->part.broadcast);
	const int code = s->code;
	fal_keyring_free(s->keys);
	fal_secret_free(s->secret);
	free(s->worker);
	image_queue_free(&s->part.outgoing);
	free(s);
	return code;
}
