/* Channels without sockets: addresses, records, queues. */
#include "../drawn.h"
#include "base/err.h"
#include "net/addr.h"
#include "net/record.h"
#include "net/sendq.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void
addresses(void **state)
{
	(void)state;
	static const struct {
		const char *text;
		enum fal_addr_kind kind;
		const char *what;
		unsigned port;
	} good[] = {
		{ "lab:7000", FAL_ADDR_TCP, "lab", 7000 },
		{ "127.0.0.1:0", FAL_ADDR_TCP, "127.0.0.1", 0 },
		{ "[::1]:65535", FAL_ADDR_TCP, "::1", 65535 },
		{ "unix:/run/falcon", FAL_ADDR_UNIX, "/run/falcon", 0 },
		{ "exec:ssh -W %h:%p lab", FAL_ADDR_EXEC, "ssh -W %h:%p lab", 0 },
	};
	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
		struct fal_addr a;
		char text[FAL_ADDR_MAX + 16];
		assert_int_equal(fal_addr_parse(good[i].text, &a, NULL), 0);
		assert_int_equal(a.kind, good[i].kind);
		assert_string_equal(a.what, good[i].what);
		assert_int_equal(a.port, good[i].port);
		fal_addr_format(&a, text);
		assert_string_equal(text, good[i].text);
	}
	static const char *const bad[] = { "",          "lab",    "lab:",     ":7000",
					   "lab:70000", "lab:7k", "::1:7000", "[::1:7000",
					   "a b:1",     "unix:",  "exec:",    "exec:a %x",
					   "exec:a %",  "[]:1",   "lab:-1",   "lab:+1" };
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct fal_addr a;
		struct fal_diag d = { "" };
		const int err = fal_addr_parse(bad[i], &a, &d);
		if (err != FAL_EFORMAT)
			fail_msg("'%s': %d", bad[i], err);
		assert_non_null(strstr(d.text, bad[i]));
	}
	/* Lists. */
	struct fal_addr list[3];
	struct fal_diag why;
	size_t n = 0;
	assert_int_equal(fal_addrs_parse("a:1,unix:/b,exec:c -o d,e", list, 3, &n, NULL),
			 0);
	assert_int_equal(n, 3);
	assert_string_equal(list[1].what, "/b");
	assert_string_equal(list[2].what, "c -o d,e");
	assert_int_equal(fal_addrs_parse("a:1", list, 3, &n, NULL), 0);
	assert_int_equal(n, 1);
	assert_int_equal(fal_addrs_parse("a:1,b:2,c:3,d:4", list, 3, &n, &why),
			 FAL_ELIMIT);
	assert_int_equal(fal_addrs_parse("a:1,", list, 3, &n, &why), FAL_EFORMAT);
	assert_int_equal(fal_addrs_parse(",a:1", list, 3, &n, &why), FAL_EFORMAT);
	assert_int_equal(fal_addrs_parse("a:1,b", list, 3, &n, &why), FAL_EFORMAT);
	assert_non_null(strstr(why.text, "'b'"));
	assert_int_equal(n, 1); /* set only on success */
	/* What others say of themselves may come to stand in a command. */
	static const char odd[] = "!\"#$&'()*+,;<=>?@\\^`{|}~%\x01\x7f\x80\xff";
	for (const char *c = odd; *c != '\0'; c++) {
		const char host[] = { 'a', *c, 'b', ':', '1', '\0' };
		struct fal_addr a;
		if (fal_addr_parse(host, &a, NULL) != FAL_EFORMAT)
			fail_msg("'%s' is an address", host);
	}
	struct fal_addr option;
	assert_int_equal(fal_addr_parse("-e:1", &option, NULL), FAL_EFORMAT);
	char deep[200] = "unix:";
	memset(deep + 5, 'x', 150);
	struct fal_addr a;
	assert_int_equal(fal_addr_parse(deep, &a, NULL), FAL_ELIMIT);
	struct fal_buf b = { 0 };
	assert_int_equal(fal_addr_parse("exec:nc %h %p 100%%", &a, NULL), 0);
	fal_addr_command(&a, &b);
	assert_string_equal((char *)b.p, "nc 127.0.0.1 7000 100%");
	fal_buf_clear(&b);
	struct fal_addr far, through;
	assert_int_equal(fal_addr_parse("[fe80::1%eth0]:7", &far, NULL), 0);
	fal_addr_via_command(&a, &far, &through);
	fal_addr_command(&through, &b);
	assert_string_equal((char *)b.p, "nc fe80::1%eth0 7 100%");
	fal_buf_free(&b);
}

/* Both ends of one direction. */
struct pair {
	struct fal_writer *w;
	struct fal_reader *r;
};

static uint8_t suite = FAL_SUITE_CHACHA20_POLY1305; /* of sessions */

static struct pair
pair_of(size_t cap)
{
	uint8_t key[FAL_KEY_BYTES];
	struct pair p = { fal_writer_new(cap), fal_reader_new() };
	struct fal_seal tx, rx;
	memset(key, 9, sizeof(key));
	assert_int_equal(fal_seal_init(&tx, suite, key), 0);
	assert_int_equal(fal_seal_init(&rx, suite, key), 0);
	assert_true(p.w != NULL && p.r != NULL);
	p.w->tx = tx;
	p.r->rx = rx;
	return p;
}

static struct pair
pair(void)
{
	return pair_of((size_t)1 << 20);
}

static void
wipe(struct pair *p)
{
	fal_writer_free(p->w);
	fal_reader_free(p->r);
}

/* The next record of `p`, as bytes. */
static struct fal_buf
take(struct pair *p)
{
	struct fal_piece piece;
	struct fal_buf b = { 0 };
	assert_int_equal(fal_writer_next(p->w, 0, &piece), 1);
	fal_put_bytes(&b, piece.p, piece.n);
	fal_piece_free(&piece);
	return b;
}

/* Reads the next record; `want` (n bytes) must be in it. */
static void
passes(struct pair *p, const void *want, size_t n)
{
	struct fal_buf b = take(p);
	const uint8_t *msg;
	size_t used, got;
	assert_int_equal(fal_reader_next(p->r, b.p, b.n, &used, &msg, &got), 1);
	assert_int_equal(used, b.n);
	assert_int_equal(got, n);
	assert_memory_equal(msg, want, n);
	fal_buf_free(&b);
}

static void
control_goes_first(void **state)
{
	(void)state;
	struct pair p = pair();
	assert_int_equal(fal_writer_put(p.w, "b1", 2, FAL_SEND_BULK), 0);
	assert_int_equal(fal_writer_put(p.w, "b2", 2, FAL_SEND_BULK), 0);
	passes(&p, "b1", 2);
	assert_int_equal(fal_writer_put(p.w, "c1", 2, FAL_SEND_CONTROL), 0);
	assert_int_equal(fal_writer_put(p.w, "c2", 2, FAL_SEND_CONTROL), 0);
	passes(&p, "c1", 2);
	passes(&p, "c2", 2);
	passes(&p, "b2", 2);
	assert_true(fal_writer_is_idle(p.w));
	wipe(&p);
}

static void
caps_hold(void **state)
{
	(void)state;
	struct pair p = pair_of(100000);
	static uint8_t msg[FAL_RECORD_MAX + 1];
	assert_int_equal(fal_writer_put(p.w, msg, sizeof(msg), FAL_SEND_BULK),
			 FAL_ELIMIT);
	assert_int_equal(fal_writer_put(p.w, msg, FAL_RECORD_MAX, FAL_SEND_BULK), 0);
	assert_int_equal(fal_writer_put(p.w, msg, 34465, FAL_SEND_CONTROL), FAL_ELIMIT);
	assert_int_equal(fal_writer_put(p.w, msg, 34464, FAL_SEND_CONTROL), 0);
	assert_int_equal(p.w->queued, 100000);
	passes(&p, msg, 34464);
	passes(&p, msg, FAL_RECORD_MAX);
	assert_int_equal(p.w->queued, 0);
	wipe(&p);
}

static void
every_changed_bit_ends_it(void **state)
{
	(void)state;
	unsigned refused = 0, bits = 0;
	for (size_t bit = 0;; bit++) {
		struct pair p = pair();
		assert_int_equal(fal_writer_put(p.w, "twelve bytes", 12, FAL_SEND_BULK),
				 0);
		struct fal_buf b = take(&p);
		const uint8_t *msg;
		size_t used, n, all = b.n * 8;
		if (bit < all) {
			b.p[bit / 8] ^= (uint8_t)(1u << bit % 8);
			refused += fal_reader_next(p.r, b.p, b.n, &used, &msg, &n) < 0;
			bits++;
		}
		fal_buf_free(&b);
		wipe(&p);
		if (bit == all)
			break;
	}
	assert_int_equal(bits, 8 * (8 + 12 + 16));
	assert_int_equal(refused, bits);
}

static void
heads_are_judged_early(void **state)
{
	(void)state;
	static const struct {
		uint8_t head[8];
		int err;
	} heads[] = {
		{ { 16, 0, 0, 0, 1, 0, 0, 0 }, FAL_ETRUNC },
		{ { 16, 0, 1, 0, 1, 0, 0, 0 }, FAL_ETRUNC }, /* 65536 + tag */
		{ { 17, 0, 1, 0, 1, 0, 0, 0 }, FAL_ELIMIT }, /* and one */
		{ { 255, 255, 255, 255, 1, 0, 0, 0 }, FAL_ELIMIT },
		{ { 15, 0, 0, 0, 1, 0, 0, 0 }, FAL_EFORMAT }, /* less than a tag */
		{ { 28, 0, 1, 0, 2, 0, 0, 0 }, FAL_ETRUNC },
		{ { 29, 0, 1, 0, 2, 0, 0, 0 }, FAL_ELIMIT },
		{ { 27, 0, 0, 0, 2, 0, 0, 0 }, FAL_EFORMAT },
		{ { 16, 0, 0, 0, 0, 0, 0, 0 }, FAL_EFORMAT },
		{ { 16, 0, 0, 0, 4, 0, 0, 0 }, FAL_EFORMAT },
		{ { 16, 0, 0, 0, 3, 0, 0, 0 }, FAL_ETRUNC },
		{ { 17, 0, 0, 0, 3, 1, 0, 0 }, FAL_EFORMAT },
		{ { 17, 0, 0, 0, 3, 4, 0, 0 }, FAL_EFORMAT },
		{ { 1, 0, 0, 0, 1, 4, 0, 0 }, FAL_ETRUNC }, /* unsealed, without a tag */
		{ { 0, 0, 1, 0, 1, 4, 0, 0 }, FAL_ETRUNC },
		{ { 1, 0, 1, 0, 1, 4, 0, 0 }, FAL_ELIMIT },
		{ { 12, 0, 0, 0, 2, 4, 0, 0 }, FAL_ETRUNC },
		{ { 12, 0, 1, 0, 2, 4, 0, 0 }, FAL_ETRUNC },
		{ { 13, 0, 1, 0, 2, 4, 0, 0 }, FAL_ELIMIT },
		{ { 11, 0, 0, 0, 2, 4, 0, 0 }, FAL_EFORMAT },
		{ { 60, 0, 0, 0, 2, 5, 0, 0 }, FAL_EFORMAT }, /* unsealed, and zstd, */
		{ { 60, 0, 0, 0, 2, 6, 0, 0 }, FAL_EFORMAT }, /* or of a suite */
		{ { 16, 0, 0, 0, 1, 6, 0, 0 }, FAL_EFORMAT },
		{ { 60, 0, 0, 0, 2, 8, 0, 0 }, FAL_EFORMAT },
		{ { 16, 0, 0, 0, 1, 2, 0, 0 }, FAL_EFORMAT },
		{ { 16, 0, 0, 0, 1, 0, 1, 0 }, FAL_EFORMAT },
	};
	for (size_t i = 0; i < sizeof(heads) / sizeof(*heads); i++) {
		struct fal_record r;
		const int err = fal_record_parse_head(heads[i].head, 8, &r);
		if (err != heads[i].err)
			fail_msg("head %zu: %d, expected %d", i, err, heads[i].err);
		assert_int_equal(fal_record_parse_head(heads[i].head, 7, &r), FAL_ETRUNC);
	}
}

static void
compresses_as_told(void **state)
{
	(void)state;
	struct pair p = pair();
	static uint8_t zeros[60000];
	assert_int_equal(fal_writer_put(p.w, zeros, sizeof(zeros), FAL_SEND_COMPRESSED),
			 0);
	passes(&p, zeros, sizeof(zeros));
	assert_in_range(p.w->zipped.bytes_out, 1, 1000);
	assert_int_equal(p.r->unzipped.bytes_in, p.w->zipped.bytes_out);
	assert_int_equal(fal_writer_put(p.w, zeros, sizeof(zeros), FAL_SEND_BULK), 0);
	passes(&p, zeros, sizeof(zeros));
	assert_int_equal(p.w->zipped.bytes_in, sizeof(zeros)); /* not that one */
	fal_writer_compress(p.w, FAL_COMPRESS_ALWAYS);
	assert_int_equal(fal_writer_put(p.w, zeros, sizeof(zeros), FAL_SEND_BULK), 0);
	passes(&p, zeros, sizeof(zeros));
	assert_int_equal(p.w->zipped.bytes_in, 2 * sizeof(zeros));
	fal_writer_compress(p.w, FAL_COMPRESS_NEVER);
	assert_false(fal_writer_is_compressing(p.w));
	wipe(&p);
}

/* What decompressing takes, in ns; 0: as long as it does. */
static uint64_t unzips;
uint64_t __real_fal_unzip_ns(struct fal_zip *z, const void *p, size_t n,
			     struct fal_buf *scratch);
uint64_t __wrap_fal_unzip_ns(struct fal_zip *z, const void *p, size_t n,
			     struct fal_buf *scratch);

uint64_t
__wrap_fal_unzip_ns(struct fal_zip *z, const void *p, size_t n, struct fal_buf *scratch)
{
	const uint64_t took = __real_fal_unzip_ns(z, p, n, scratch);
	assert_true(took > 0 && scratch->n > n);
	return unzips > 0 ? unzips : took;
}

/* Whether compression goes on after a measurement at `rate`. */
static bool
auto_goes_on(double rate, const uint8_t *msg, size_t n)
{
	struct pair p = pair();
	fal_writer_compress(p.w, FAL_COMPRESS_AUTO);
	for (size_t sent = 0; sent < FAL_WRITER_TRIAL + n; sent += n) {
		struct fal_piece piece;
		assert_true(fal_writer_is_compressing(p.w));
		assert_int_equal(fal_writer_put(p.w, msg, n, FAL_SEND_BULK), 0);
		assert_int_equal(fal_writer_next(p.w, rate, &piece), 1);
		fal_piece_free(&piece);
	}
	const bool goes_on = fal_writer_is_compressing(p.w);
	wipe(&p);
	return goes_on;
}

static void
auto_compresses_where_it_pays(void **state)
{
	(void)state;
	static uint8_t zeros[32768], noise[32768];
	fal_random_bytes(noise, sizeof(noise));
	assert_true(auto_goes_on(1e3, zeros, sizeof(zeros)));
	assert_false(auto_goes_on(1e15, zeros, sizeof(zeros)));
	assert_false(auto_goes_on(1e3, noise, sizeof(noise)));
	assert_true(auto_goes_on(0, noise, sizeof(noise))); /* not known yet */
}

/* Where the other end would take as long as the line does, it pays nothing. */
static void
decompressing_costs_too(void **state)
{
	(void)state;
	static uint8_t zeros[32768];
	unzips = (uint64_t)(1e9 * sizeof(zeros) / 1e3);
	assert_false(auto_goes_on(1e3, zeros, sizeof(zeros)));
	assert_true(auto_goes_on(1e2, zeros, sizeof(zeros)));
	unzips = 0;
}

/* However small the messages, and whatever is known of the link. */
static void
every_measurement_ends(void **state)
{
	(void)state;
	static uint8_t zeros[32768];
	const double rates[] = { 0, 1e3, 1e15 };
	const size_t sizes[] = { 1, FAL_WRITER_ZIP_MIN, 4096, sizeof(zeros) };
	for (size_t i = 0; i < 3; i++)
		for (size_t k = 0; k < 4; k++) {
			struct pair p = pair();
			fal_writer_compress(p.w, FAL_COMPRESS_AUTO);
			for (unsigned sent = 0; sent <= FAL_WRITER_TRIES; sent++) {
				struct fal_piece piece;
				assert_int_equal(fal_writer_put(p.w, zeros, sizes[k],
								FAL_SEND_BULK),
						 0);
				assert_int_equal(fal_writer_next(p.w, rates[i], &piece),
						 1);
				fal_piece_free(&piece);
			}
			if (p.w->trial)
				fail_msg("%zu bytes at %g B/s are measured for ever",
					 sizes[k], rates[i]);
			assert_int_equal(fal_writer_is_compressing(p.w),
					 rates[i] == 1e3 && sizes[k] > 1);
			wipe(&p);
		}
}

static struct fal_shared_pool *pool; /* of all publications */

static uint8_t shared_suite; /* of publications */

/* Adds the next message, which lies in one place. */
static int
add_one(struct fal_shared *s, const void *msg, size_t n)
{
	const struct fal_shared_text text = { .msg = { .p = msg, .n = n },
					      .index = s->made };
	return fal_shared_add_texts(s, &text, 1);
}

static struct fal_shared *
publish_parts(uint64_t id, bool zstd, uint32_t parts)
{
	static uint8_t msg[1000];
	const struct fal_shared_opt opt = { .pool = pool,
					    .publication = id,
					    .count = 3,
					    .ad = "job",
					    .ad_n = 3,
					    .parts = parts,
					    .suite = shared_suite,
					    .zstd = zstd };
	struct fal_shared *s;
	assert_int_equal(fal_shared_new(&opt, &s), 0);
	for (int i = 0; i < 3; i++) {
		assert_false(fal_shared_is_complete(s));
		msg[0] = (uint8_t)i;
		assert_int_equal(add_one(s, msg, sizeof(msg)), 0);
	}
	assert_true(fal_shared_is_complete(s));
	assert_int_equal(add_one(s, msg, 1), FAL_ESTATE);
	return s;
}

static struct fal_shared *
publish(uint64_t id, bool zstd)
{
	return publish_parts(id, zstd, 1);
}

static struct fal_publication
announced(const struct fal_shared *s)
{
	return (struct fal_publication){
		.id = s->pub.id, .count = 3, .key = s->pub.key, .ad = "job", .ad_n = 3
	};
}

/* What a reader that expects `pub` says to record i of `s`. */
static int
reads(struct fal_reader *r, const struct fal_shared *s, uint32_t i)
{
	size_t n, used, msg_n;
	const uint8_t *msg, *wire = fal_shared_record(s, i, &n);
	uint8_t *copy = malloc(n);
	memcpy(copy, wire, n);
	const int got = fal_reader_next(r, copy, n, &used, &msg, &msg_n);
	if (got == 1) {
		assert_int_equal(msg_n, 1000);
		assert_int_equal(msg[0], i);
	}
	free(copy);
	return got;
}

/* In what compressing publications costs, too, whose pieces are of several messages. */
static void
shared_ones_are_decompressed(void **state)
{
	enum { MESSAGES = 5 };
	static uint8_t zeros[4096];
	const uint64_t each = 1000000000;
	struct fal_shared_pool *own = fal_shared_pool_new(NULL);
	(void)state;
	for (int zstd = 0; zstd < 2; zstd++) {
		const struct fal_shared_opt opt = {
			.pool = own, .publication = 1, .count = MESSAGES, .zstd = zstd
		};
		struct fal_shared_text text[MESSAGES];
		struct fal_shared *s;
		unzips = each;
		assert_int_equal(fal_shared_new(&opt, &s), 0);
		for (uint32_t i = 0; i < MESSAGES; i++)
			text[i] = (struct fal_shared_text){
				.msg = { .p = zeros, .n = sizeof(zeros) }, .index = i
			};
		assert_int_equal(fal_shared_add_texts(s, text, MESSAGES), 0);
		assert_int_equal(s->stat.ns / each, zstd ? MESSAGES : 0);
		fal_shared_drop(s);
		unzips = 0;
	}
	fal_shared_pool_free(own);
}

static void
shared_records(void **state)
{
	(void)state;
	for (int zstd = 0; zstd < 2; zstd++) {
		struct pair p = pair();
		struct fal_shared *s = publish(5, zstd), *t = publish(6, zstd);
		struct fal_publication pub = announced(s);
		assert_int_equal(reads(p.r, s, 0), FAL_ESTATE); /* not announced */
		assert_int_equal(fal_reader_expect(p.r, &pub), 0);
		assert_int_equal(fal_reader_expect(p.r, &pub), FAL_EEXIST);
		assert_int_equal(reads(p.r, s, 0), 1);
		assert_int_equal(reads(p.r, s, 0), FAL_ESTATE); /* again */
		assert_int_equal(reads(p.r, s, 2), 1);          /* in any order, */
		assert_int_equal(reads(p.r, s, 2), FAL_ESTATE); /* each once */
		assert_int_equal(reads(p.r, t, 0), FAL_ESTATE);
		pub = announced(t);
		pub.ad[0] = 'J';
		assert_int_equal(fal_reader_expect(p.r, &pub), 0);
		assert_int_equal(reads(p.r, t, 0), FAL_EAUTH); /* of another job */
		assert_int_equal(reads(p.r, s, 0), FAL_ESTATE);
		assert_int_equal(reads(p.r, s, 1), 1);
		assert_int_equal(reads(p.r, s, 0), 0); /* it is through */
		assert_int_equal(s->bytes < 1000, zstd);
		fal_shared_drop(s);
		fal_shared_drop(t);
		wipe(&p);
	}
}

/* Ids come in any order, each once as long as it is expected; when there are too many the
 * one told first is given up, whatever its number. */
static void
any_order_of_ids(void **state)
{
	struct fal_rng rng = fal_rng_init(drawn_seed(53), FAL_RNG_TEST, 0);
	struct pair p = pair();
	const uint64_t first = 2 + fal_rng_below(&rng, 1000);
	const uint64_t ids[] = { first + 1, first - 1, first };
	struct fal_shared *s[3];
	struct fal_publication pub;
	(void)state;
	for (int i = 0; i < 3; i++) {
		s[i] = publish(ids[i], one_in(&rng, 2));
		pub = announced(s[i]);
		assert_int_equal(fal_reader_expect(p.r, &pub), 0);
		assert_int_equal(fal_reader_expect(p.r, &pub), FAL_EEXIST);
	}
	for (int i = 2; i >= 0; i--)
		assert_int_equal(reads(p.r, s[i], 0), 1);
	/* One that was never told is skipped, or an error above all that were. */
	struct fal_shared *never = publish(first + 2, false);
	assert_int_equal(reads(p.r, never, 0), FAL_ESTATE);
	for (size_t i = 0; i + 2 < FAL_EXPECT_MAX; i++) {
		pub.id = first + 3 + i;
		assert_int_equal(fal_reader_expect(p.r, &pub), 0);
	}
	assert_int_equal(reads(p.r, never, 0), 0);
	assert_int_equal(reads(p.r, s[0], 1), 0); /* given up */
	for (int i = 2; i > 0; i--)
		assert_int_equal(reads(p.r, s[i], 1), 1);
	fal_shared_drop(never);
	for (int i = 0; i < 3; i++)
		fal_shared_drop(s[i]);
	wipe(&p);
}

/* Where what is behind so many bytes of each message goes. */
struct asked {
	uint8_t *to;
	size_t head;
	uint64_t version;
	uint32_t index, times;
};

static uint8_t *
on_place(void *arg, const struct fal_publication *of, uint32_t index, size_t n,
	 size_t *head)
{
	struct asked *a = arg;
	assert_int_equal(n, 1000);
	a->times++;
	a->index = index;
	a->version = of->version;
	if (a->to != NULL)
		*head = a->head;
	return a->to;
}

/* What is wanted elsewhere is there when the reader says so, and only then; neither its
 * neighbours are touched nor compressed messages placed. */
static void
placed_records(void **state)
{
	static uint8_t room[1002];
	struct fal_rng rng = fal_rng_init(drawn_seed(39), FAL_RNG_TEST, 0);
	(void)state;
	for (int round = 0; round < 200; round++) {
		const bool zstd = one_in(&rng, 4), spoilt = one_in(&rng, 3);
		const size_t head = fal_rng_below(&rng, 1001);
		struct asked a = { .to = one_in(&rng, 4) ? NULL : room + 1,
				   .head = head };
		const bool placed = !zstd && a.to != NULL;
		struct pair p = pair();
		struct fal_shared *s = publish(5, zstd);
		struct fal_publication pub = announced(s);
		const uint8_t *msg, *wire;
		size_t n, used, msg_n;
		pub.version = 77;
		assert_int_equal(fal_reader_expect(p.r, &pub), 0);
		p.r->place = on_place;
		p.r->place_arg = &a;
		memset(room, 0x55, sizeof(room));
		wire = fal_shared_record(s, 0, &n);
		uint8_t *copy = malloc(n);
		memcpy(copy, wire, n);
		copy[FAL_RECORD_SHARED_HEAD + 1 +
		     fal_rng_below(&rng, (uint32_t)n - FAL_RECORD_SHARED_HEAD - 1)] ^=
			spoilt;
		assert_int_equal(fal_reader_next(p.r, copy, n, &used, &msg, &msg_n),
				 spoilt   ? FAL_EAUTH
				 : placed ? 2
					  : 1);
		assert_int_equal(a.times, !zstd);
		assert_int_equal(a.version, zstd ? 0 : 77);
		assert_int_equal(room[0], 0x55);
		assert_int_equal(room[1 + 1000 - head], 0x55);
		if (!spoilt) {
			static const uint8_t zeros[1000];
			assert_int_equal(msg_n, placed ? head : 1000);
			assert_memory_equal(msg, zeros, msg_n);
			if (placed)
				assert_memory_equal(room + 1, zeros, 1000 - head);
		}
		free(copy);
		fal_shared_drop(s);
		wipe(&p);
	}
}

/* A session with AES-256-GCM opens publications by either suite, as their flag says; one
 * without takes none by AES. */
static void
shared_suites(void **state)
{
	enum { CHACHA = FAL_SUITE_CHACHA20_POLY1305, AES = FAL_SUITE_AES256_GCM };
	struct fal_aead *a;
	(void)state;
	if (fal_aead_new(AES, FAL_LIBRARY_ANY, &a) < 0)
		skip();
	fal_aead_free(a);
	for (suite = CHACHA; suite <= AES; suite++)
		for (shared_suite = CHACHA; shared_suite <= AES; shared_suite++) {
			struct pair p = pair();
			struct fal_shared *s = publish(5, shared_suite == suite);
			const struct fal_publication pub = announced(s);
			const uint8_t *wire, *msg;
			size_t n, used, msg_n;
			const bool aes = shared_suite == AES;
			assert_int_equal(s->suite, shared_suite);
			wire = fal_shared_record(s, 0, &n);
			assert_int_equal(wire[5] & FAL_RECORD_AES,
					 aes ? FAL_RECORD_AES : 0);
			assert_int_equal(fal_reader_expect(p.r, &pub), 0);
			/* Told that it is by the other one. */
			uint8_t *other = malloc(n);
			memcpy(other, wire, n);
			other[5] ^= FAL_RECORD_AES;
			assert_int_equal(fal_reader_next(p.r, other, n, &used, &msg,
							 &msg_n),
					 suite == CHACHA && !aes ? FAL_EFORMAT
								 : FAL_EAUTH);
			free(other);
			if (suite == CHACHA && aes)
				assert_int_equal(reads(p.r, s, 0), FAL_EFORMAT);
			else
				for (uint32_t i = 0; i < 3; i++)
					assert_int_equal(reads(p.r, s, i), 1);
			fal_shared_drop(s);
			wipe(&p);
		}
	suite = CHACHA;
	shared_suite = 0;
}

/* And no session record may say so. */
static void
sessions_have_no_suite_flag(void **state)
{
	uint8_t head[8] = { 16, 0, 0, 0, FAL_RECORD_SESSION, FAL_RECORD_AES, 0, 0 };
	struct fal_record rec;
	(void)state;
	assert_int_equal(fal_record_parse_head(head, 8, &rec), FAL_EFORMAT);
	head[5] = FAL_RECORD_ZSTD;
	assert_int_equal(fal_record_parse_head(head, 8, &rec), FAL_ETRUNC);
}

static bool
is_old(const void *arg, const struct fal_shared *s)
{
	(void)arg;
	return !s->lasting;
}

static void
skips_what_is_old(void **state)
{
	(void)state;
	struct pair p = pair();
	struct fal_shared *s = publish(1, false), *t = publish(2, false);
	assert_int_equal(fal_writer_put_shared(p.w, s), 0);
	assert_int_equal(fal_writer_put(p.w, "bulk", 4, FAL_SEND_BULK), 0);
	struct fal_buf b = take(&p);
	size_t n;
	const uint8_t *first = fal_shared_record(s, 0, &n);
	assert_int_equal(b.n, n);
	assert_memory_equal(b.p, first, n);
	fal_buf_free(&b);
	fal_writer_drop_outdated(p.w, is_old, NULL);
	assert_int_equal(fal_writer_put_shared(p.w, t), 0);
	fal_shared_drop(s);
	passes(&p, "bulk", 4);
	const struct fal_publication pub = announced(t);
	assert_int_equal(fal_reader_expect(p.r, &pub), 0);
	for (uint32_t i = 0; i < 3; i++) {
		b = take(&p);
		const uint8_t *msg;
		size_t used, got;
		assert_int_equal(fal_reader_next(p.r, b.p, b.n, &used, &msg, &got), 1);
		assert_int_equal(msg[0], i);
		fal_buf_free(&b);
	}
	assert_true(fal_writer_is_idle(p.w));
	for (int i = 0; i < FAL_VERSIONS_MAX; i++)
		assert_int_equal(fal_writer_put_shared(p.w, t), 0);
	assert_int_equal(fal_writer_put_shared(p.w, t), FAL_ELIMIT);
	fal_shared_drop(t);
	wipe(&p);
}

/* What is on its way to who is slow keeps nothing else of a version that was dropped. */
static void
a_lent_record_stays_alone(void **state)
{
	(void)state;
	struct fal_shared *s = publish(1, false);
	const uint8_t *lent, *others[2];
	uint8_t *was;
	size_t n, of;
	bool again = false;
	lent = fal_shared_record(s, 0, &n);
	for (uint32_t i = 0; i < 2; i++)
		others[i] = fal_shared_record(s, i + 1, &of);
	was = malloc(n);
	memcpy(was, lent, n);
	fal_shared_lend(s, 0);
	fal_shared_lend(s, 0);
	fal_shared_drop(s);
	struct fal_shared *t = publish(2, false);
	for (uint32_t i = 0; i < 3; i++) {
		const uint8_t *p = fal_shared_record(t, i, &of);
		assert_ptr_not_equal(p, lent);
		again |= p == others[0] || p == others[1];
	}
	assert_true(again);
	fal_shared_return(s, 0);
	assert_memory_equal(lent, was, n);
	fal_shared_return(s, 0);
	fal_shared_drop(t);
	free(was);
}

/* Of the most shards, with the largest slack, all that a worker may compute on is told
 * before any of it comes. */
static void
every_version_of_every_shard(void **state)
{
	(void)state;
	enum { VERSIONS = FAL_SLACK_MAX + 1, ALL = VERSIONS * FAL_SHARDS_MAX };
	static struct fal_shared *s[ALL];
	struct pair p = pair();
	for (int i = 0; i < ALL; i++) {
		s[i] = publish_parts((uint64_t)i + 1, false, FAL_SHARDS_MAX);
		const struct fal_publication pub = announced(s[i]);
		assert_int_equal(fal_reader_expect(p.r, &pub), 0);
		assert_int_equal(fal_writer_put_shared(p.w, s[i]), 0);
	}
	for (int i = 0; i < ALL; i++) {
		for (uint32_t k = 0; k < 3; k++)
			assert_int_equal(reads(p.r, s[i], k), 1);
		fal_shared_drop(s[i]);
	}
	wipe(&p);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(addresses),
		cmocka_unit_test(control_goes_first),
		cmocka_unit_test(caps_hold),
		cmocka_unit_test(every_changed_bit_ends_it),
		cmocka_unit_test(heads_are_judged_early),
		cmocka_unit_test(compresses_as_told),
		cmocka_unit_test(auto_compresses_where_it_pays),
		cmocka_unit_test(decompressing_costs_too),
		cmocka_unit_test(every_measurement_ends),
		cmocka_unit_test(shared_ones_are_decompressed),
		cmocka_unit_test(shared_records),
		cmocka_unit_test(any_order_of_ids),
		cmocka_unit_test(placed_records),
		cmocka_unit_test(shared_suites),
		cmocka_unit_test(sessions_have_no_suite_flag),
		cmocka_unit_test(every_version_of_every_shard),
		cmocka_unit_test(skips_what_is_old),
		cmocka_unit_test(a_lent_record_stays_alone),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	pool = fal_shared_pool_new(NULL);
	const int failed = cmocka_run_group_tests(tests, NULL, NULL);
	fal_shared_pool_free(pool);
	return failed;
}
