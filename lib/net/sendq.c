/* Queues, compression and sealing of messages to send, and batches of records. */
#include "net/sendq.h"

#include "base/fault.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <uv.h>

/* Long messages of bulk, about a batch, whose memory is kept for later messages: new
 * pages cost as much time as sealing. */
#define SPARES 24

#define RATE_BATCH ((size_t)32 << 10)  /* bytes; smaller batches do not count */
#define RATE_BYTES ((uint64_t)1 << 20) /* end of a measurement of the rate, */
#define RATE_NS 20000000u              /* or its duration */

/* The kinds of enum fal_send, and two of our own. */
enum node_kind {
	NODE_CONTROL = FAL_SEND_CONTROL,
	NODE_BULK = FAL_SEND_BULK,
	NODE_PACKED = FAL_SEND_COMPRESSED,
	NODE_ZIPPED = FAL_SEND_PRECOMPRESSED,
	NODE_RAW,   /* leaves as it is */
	NODE_UNSEAL /* an unseal record */
};

/* A message between its head and its tag, or a publication under way. */
struct fal_node {
	TAILQ_ENTRY(fal_node) link;
	struct fal_writer *owner;  /* keeps it as a spare, or NULL */
	struct fal_shared *shared; /* NULL: bytes */
	uint32_t index;            /* the publication's next record */
	size_t n;                  /* bytes of the message */
	enum node_kind kind;       /* of a message */
	uint8_t bytes[];
};

static void
writer_free_node(struct fal_node *node)
{
	fal_shared_drop(node->shared);
	struct fal_writer *w = node->owner;
	if (w == NULL || w->spares == SPARES) {
		free(node);
		return;
	}
	TAILQ_INSERT_HEAD(&w->spare, node, link);
	w->spares++;
}

struct fal_writer *
fal_writer_new(size_t cap)
{
	struct fal_writer *w = fal_xcalloc(1, sizeof(*w));
	w->cap = cap;
	TAILQ_INIT(&w->control);
	TAILQ_INIT(&w->bulk);
	TAILQ_INIT(&w->spare);
	return w;
}

void
fal_writer_free(struct fal_writer *w)
{
	if (w == NULL)
		return;
	fal_seal_wipe(&w->tx);
	w->spares = SPARES; /* no node becomes a spare any more */
	TAILQ_CONCAT(&w->control, &w->bulk, link);
	TAILQ_CONCAT(&w->control, &w->spare, link);
	for (struct fal_node *node; (node = TAILQ_FIRST(&w->control)) != NULL;) {
		TAILQ_REMOVE(&w->control, node, link);
		writer_free_node(node);
	}
	fal_zip_free(w->zip);
	fal_buf_free(&w->packed);
	free(w);
}

/* A node with room for head, n bytes and tag; NULL: out of memory. */
static struct fal_node *
writer_new_node(size_t n)
{
	struct fal_node *node =
		FAL_TRY(MALLOC, NULL,
			malloc(sizeof(*node) + FAL_RECORD_HEAD + n + FAL_SEAL_TAG));
	if (node != NULL)
		*node = (struct fal_node){ .n = n };
	return node;
}

/* A node for a few bytes of the program's own. */
static struct fal_node *
writer_own_node(struct fal_writer *w, size_t n)
{
	struct fal_node *node = writer_new_node(n);
	if (node == NULL)
		fal_out_of_memory();
	w->queued += n;
	return node;
}

void
fal_writer_put_unseal(struct fal_writer *w, const void *p, size_t n)
{
	struct fal_node *node = writer_own_node(w, n);
	if (n != 0)
		memcpy(node->bytes + FAL_RECORD_HEAD, p, n);
	node->kind = NODE_UNSEAL;
	TAILQ_INSERT_TAIL(&w->control, node, link);
}

int
fal_writer_put(struct fal_writer *w, const void *msg, size_t n, enum fal_send how)
{
	if (n > FAL_RECORD_MAX || n > w->cap || w->queued > w->cap - n)
		return FAL_ELIMIT;
	/* A long message of bulk gets the memory of a spare node, and returns that memory
	 * later. */
	const bool is_long = how == FAL_SEND_BULK && n >= FAL_RECORD_MAX / 2;
	struct fal_node *node = is_long ? TAILQ_FIRST(&w->spare) : NULL;
	if (node != NULL) {
		TAILQ_REMOVE(&w->spare, node, link);
		w->spares--;
	} else {
		node = writer_new_node(is_long ? FAL_RECORD_MAX : n);
	}
	if (node == NULL)
		return FAL_ENOMEM;
	*node = (struct fal_node){ .n = n,
				   .owner = is_long ? w : NULL,
				   .kind = (enum node_kind)how };
	if (n != 0)
		memcpy(node->bytes + FAL_RECORD_HEAD, msg, n);
	TAILQ_INSERT_TAIL(how == FAL_SEND_CONTROL ? &w->control : &w->bulk, node, link);
	w->queued += n;
	return FAL_OK;
}

void
fal_writer_put_raw(struct fal_writer *w, const void *p, size_t n)
{
	struct fal_node *node = writer_own_node(w, n);
	memcpy(node->bytes, p, n);
	node->kind = NODE_RAW;
	TAILQ_INSERT_HEAD(&w->control, node, link);
}

int
fal_writer_put_shared(struct fal_writer *w, struct fal_shared *s)
{
	if (w->shared >= FAL_VERSIONS_MAX * s->parts)
		return FAL_ELIMIT;
	struct fal_node *node = writer_own_node(w, 0);
	node->shared = fal_shared_ref(s);
	TAILQ_INSERT_TAIL(&w->bulk, node, link);
	w->shared++;
	return FAL_OK;
}

/* Drops a publication from the queue. */
static void
writer_drop_shared(struct fal_writer *w, struct fal_node *node)
{
	TAILQ_REMOVE(&w->bulk, node, link);
	writer_free_node(node);
	w->shared--;
}

void
fal_writer_drop_outdated(struct fal_writer *w, fal_is_outdated_fn *is_old,
			 const void *arg)
{
	struct fal_node *next;
	for (struct fal_node *node = TAILQ_FIRST(&w->bulk); node != NULL; node = next) {
		next = TAILQ_NEXT(node, link);
		if (node->shared != NULL && is_old(arg, node->shared))
			writer_drop_shared(w, node);
	}
}

/* Is the next record of a publication not made yet? */
static bool
node_awaits_record(const struct fal_node *node)
{
	return node->shared != NULL && node->index == node->shared->made;
}

bool
fal_writer_is_idle(const struct fal_writer *w)
{
	const struct fal_node *node = TAILQ_FIRST(&w->bulk);
	while (node != NULL && node_awaits_record(node))
		node = TAILQ_NEXT(node, link);
	return TAILQ_EMPTY(&w->control) && node == NULL;
}

void
fal_writer_compress(struct fal_writer *w, enum fal_compress mode)
{
	w->mode = mode;
	w->trial = mode == FAL_COMPRESS_AUTO;
	w->pays = false;
	w->tries = 0;
	w->measured = (struct fal_zip_stat){ 0 };
}

bool
fal_writer_is_compressing(const struct fal_writer *w)
{
	return w->mode == FAL_COMPRESS_ALWAYS || w->trial || w->pays;
}

static void
zip_stat_add(struct fal_zip_stat *to, const struct fal_zip_stat *stat)
{
	to->bytes_in += stat->bytes_in;
	to->bytes_out += stat->bytes_out;
	to->ns += stat->ns;
}

/* Compresses the message if that makes the message smaller; returns true if the message
 * was compressed. */
static bool
writer_compress(struct fal_writer *w, struct fal_node *node)
{
	const uint64_t begun = uv_hrtime();
	if (w->zip == NULL)
		w->zip = fal_zip_new(FAL_ZIP_LEVEL);
	uint8_t *msg = node->bytes + FAL_RECORD_HEAD;
	struct fal_zip_stat stat = { .bytes_in = node->n, .bytes_out = node->n };
	fal_buf_clear(&w->packed);
	const bool smaller =
		fal_zip_compress(w->zip, msg, node->n, &w->packed) == FAL_OK &&
		w->packed.n < node->n;
	if (smaller) {
		memcpy(msg, w->packed.p, w->packed.n);
		node->n = stat.bytes_out = w->packed.n;
	}
	stat.ns = uv_hrtime() - begun;
	zip_stat_add(&w->zipped, &stat);
	if (node->kind == NODE_PACKED)
		return smaller;
	if (smaller && w->trial)
		stat.ns += fal_unzip_ns(w->zip, msg, node->n, &w->packed);
	zip_stat_add(&w->measured, &stat);
	return smaller;
}

/* Makes the record of a message that was taken out of its queue: `*n` bytes. */
static int
writer_make_record(struct fal_writer *w, struct fal_node *node, size_t *n)
{
	const bool compress = node->kind == NODE_PACKED ||
			      (node->kind == NODE_BULK && fal_writer_is_compressing(w));
	uint8_t flags = node->kind == NODE_ZIPPED ? FAL_RECORD_ZSTD : 0;
	w->tries += node->kind == NODE_BULK;
	if (compress && node->n >= FAL_WRITER_ZIP_MIN && writer_compress(w, node))
		flags = FAL_RECORD_ZSTD;
	*n = FAL_RECORD_HEAD + node->n;
	if (w->unsealed) {
		fal_record_put_unsealed(flags, node->bytes, node->n);
		return FAL_OK;
	}
	*n += FAL_SEAL_TAG;
	const bool unseal = node->kind == NODE_UNSEAL;
	w->unsealed = unseal && node->n == 0;
	return fal_record_seal(&w->tx, unseal ? FAL_RECORD_UNSEAL : FAL_RECORD_SESSION,
			       flags, node->bytes, node->n);
}

int
fal_writer_next(struct fal_writer *w, double rate, struct fal_piece *out)
{
	struct fal_node *node = TAILQ_FIRST(&w->control);
	struct fal_fifo *q = node != NULL ? &w->control : &w->bulk;
	if (node == NULL)
		node = TAILQ_FIRST(&w->bulk);
	/* A publication whose next record is not made yet does not hold up later nodes,
	 * as the publication's maker may wait for a later node.  A publication that is
	 * broken off leaves the queue. */
	while (node != NULL && node_awaits_record(node)) {
		struct fal_node *next = TAILQ_NEXT(node, link);
		if (node->shared->broken)
			writer_drop_shared(w, node);
		node = next;
	}
	if (node == NULL || (w->tx.key == NULL && node->kind != NODE_RAW))
		return 0;
	/* A measurement ends once enough bytes were measured, or as many as are
	 * allowed. */
	const bool enough = rate > 0 && w->measured.bytes_in >= FAL_WRITER_TRIAL;
	if (w->trial && (enough || w->tries >= FAL_WRITER_TRIES)) {
		w->trial = false;
		w->pays = rate > 0 && fal_zip_pays(&w->measured, rate);
	}
	struct fal_shared *s = node->shared;
	if (s != NULL) {
		*out = (struct fal_piece){ .shared = s, .at = node->index };
		fal_shared_lend(s, node->index);
		w->tries += node->index == 0;
		out->p = fal_shared_record(s, node->index, &out->n);
		if (++node->index == s->pub.count) {
			zip_stat_add(&w->measured, &s->stat);
			writer_drop_shared(w, node);
		}
		return 1;
	}
	TAILQ_REMOVE(q, node, link);
	struct fal_piece piece = { .p = node->bytes, .n = node->n, .node = node };
	w->queued -= node->n;
	if (node->kind != NODE_RAW) {
		const int err = writer_make_record(w, node, &piece.n);
		if (err < 0) {
			writer_free_node(node);
			return err;
		}
	}
	*out = piece;
	return 1;
}

void
fal_piece_free(struct fal_piece *piece)
{
	if (piece->node != NULL)
		writer_free_node(piece->node);
	if (piece->shared != NULL)
		fal_shared_return(piece->shared, piece->at);
	*piece = (struct fal_piece){ 0 };
}

/* --- batches --- */

void
fal_outbox_drop(struct fal_outbox *b)
{
	for (unsigned i = 0; i < b->n; i++)
		fal_piece_free(&b->piece[i]);
	b->n = 0;
	b->bytes = b->own = b->taken = 0;
}

int
fal_outbox_fill(struct fal_outbox *b, struct fal_writer *w, size_t limit, double rate)
{
	while (b->n < FAL_OUTBOX_PIECES && b->bytes < limit) {
		struct fal_piece *piece = &b->piece[b->n];
		const int got = fal_writer_next(w, rate, piece);
		if (got <= 0)
			return got;
		b->n++;
		b->bytes += piece->n;
		b->own += piece->node != NULL ? piece->n : 0;
	}
	return FAL_OK;
}

unsigned
fal_outbox_bufs(const struct fal_outbox *b, uv_buf_t out[FAL_OUTBOX_PIECES])
{
	size_t skip = b->taken;
	unsigned n = 0;
	for (unsigned i = 0; i < b->n; i++) {
		const struct fal_piece *piece = &b->piece[i];
		if (skip >= piece->n) {
			skip -= piece->n;
			continue;
		}
		/* libuv's buffers are not const, even for writing from them. */
		out[n].base = (char *)(uintptr_t)piece->p + skip;
		out[n++].len = piece->n - skip;
		skip = 0;
	}
	return n;
}

void
fal_outbox_copy(const struct fal_outbox *b, char *out)
{
	for (unsigned i = 0; i < b->n; out += b->piece[i++].n)
		memcpy(out, b->piece[i].p, b->piece[i].n);
}

void
fal_outbox_complete(struct fal_outbox *b)
{
	const size_t bytes = b->bytes;
	fal_outbox_drop(b);
	b->tx += bytes;
	/* A small batch measures wake-ups, not the link. */
	if (bytes < RATE_BATCH)
		return;
	/* The link needed the time since the batch was offered. */
	b->rate_bytes += bytes;
	b->rate_ns += uv_hrtime() - b->offered;
	if (b->rate_bytes < RATE_BYTES && b->rate_ns < RATE_NS)
		return;
	const double rate = (double)b->rate_bytes / ((double)(b->rate_ns + 1) * 1e-9);
	b->rate = b->rate > 0 ? 0.75 * b->rate + 0.25 * rate : rate;
	b->rate_bytes = b->rate_ns = 0;
}

void
fal_outbox_advance(struct fal_outbox *b, size_t n)
{
	b->taken += n;
	if (b->taken == b->bytes)
		fal_outbox_complete(b);
}

size_t
fal_outbox_limit(const struct fal_outbox *b)
{
	const double n = b->rate * FAL_OUTBOX_S;
	if (b->rate <= 0 || n >= (double)FAL_OUTBOX_MAX)
		return FAL_OUTBOX_MAX;
	return n < (double)FAL_OUTBOX_SMALL ? FAL_OUTBOX_SMALL : (size_t)n;
}
