/* Memory that two programs share, without sockets: shelves, rings, and records that tell
 * of them. */
#include "../drawn.h"
#include "base/err.h"
#include "net/area.h"
#include "net/reader.h"
#include "net/writer.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* Bytes that are like no others. */
static void
draw_bytes(uint64_t of, uint8_t *p, size_t n)
{
	struct fal_rng rng = fal_rng_init(of, FAL_RNG_TEST, 1);
	for (size_t i = 0; i < n; i += 4) {
		const uint32_t v = fal_rng_u32(&rng);
		memcpy(p + i, &v, n - i < 4 ? n - i : 4);
	}
}

static bool
are_bytes(uint64_t of, const uint8_t *p, size_t n)
{
	static uint8_t want[FAL_RECORD_MAX];
	assert_true(n <= sizeof(want));
	draw_bytes(of, want, n);
	return n == 0 || memcmp(p, want, n) == 0;
}

/* --- shelves --- */

#define PUTS 400                        /* most of a round */
#define RING (((size_t)300 << 10) + 64) /* bytes */

/* A shelf, and what must be there. */
struct twin {
	struct fal_shelf *s;
	struct fal_shelf_view *v;
	size_t bytes;
	struct {
		bool there;
		uint64_t version,
			age; /* age: when it was taken, 0: at no time that matters */
		size_t full;
	} slot[FAL_SHELF_SLOTS];
	uint64_t clock;
	struct {
		struct fal_where where;
		uint64_t bytes; /* for are_bytes */
		bool gone;
	} put[PUTS];
	unsigned puts;
};

static void
begin(struct twin *t, struct fal_rng *rng)
{
	*t = (struct twin){ .bytes = 1 + fal_rng_below(rng, 3 * 4096) };
	assert_int_equal(fal_shelf_new(t->bytes, &t->s), 0);
	assert_int_equal(fal_shelf_bytes(t->s), t->bytes);
	assert_int_equal(fal_shelf_see(fal_shelf_fd(t->s), t->bytes, &t->v), 0);
}

static void
over(struct twin *t)
{
	fal_shelf_free(t->s);
	fal_shelf_view_free(t->v);
}

/* What lies in the place is not there any more. */
static void
goes(struct twin *t, uint32_t slot)
{
	for (unsigned i = 0; i < t->puts; i++)
		t->put[i].gone |= t->put[i].where.slot == slot;
	t->slot[slot].full = 0;
}

static uint32_t
takes(struct twin *t, uint64_t version)
{
	const uint32_t got = fal_shelf_take(t->s, version);
	uint32_t has = FAL_SHELF_SLOTS, oldest = 0;
	for (uint32_t i = 0; i < FAL_SHELF_SLOTS; i++) {
		if (t->slot[i].there && t->slot[i].version == version)
			has = i;
		if (t->slot[i].age < t->slot[oldest].age)
			oldest = i;
	}
	assert_in_range(got, 0, FAL_SHELF_SLOTS - 1);
	if (has < FAL_SHELF_SLOTS) {
		assert_int_equal(got, has);
		t->slot[got].age = ++t->clock; /* of when it was taken last */
		return got;
	}
	assert_int_equal(t->slot[got].age, t->slot[oldest].age);
	goes(t, got);
	t->slot[got].there = true;
	t->slot[got].version = version;
	t->slot[got].age = ++t->clock;
	return got;
}

/* Lays some bytes behind the others of the place, perhaps too many. */
static void
puts_more(struct twin *t, struct fal_rng *rng, uint32_t slot)
{
	static uint8_t bytes[3 * 4096 + 2];
	const size_t at = t->slot[slot].full, room = t->bytes - at;
	const size_t n = fal_rng_below(rng, (uint32_t)room + 2);
	const uint64_t of = fal_rng_u64(rng);
	struct fal_where w;
	draw_bytes(of, bytes, n);
	const int err = fal_shelf_put(t->s, slot, at, bytes, n, &w);
	assert_int_equal(err, n > room ? FAL_ELIMIT : FAL_OK);
	assert_int_equal(fal_shelf_put(t->s, slot, t->bytes + 1, bytes, 0, &w),
			 FAL_ELIMIT);
	assert_int_equal(fal_shelf_put(t->s, slot, SIZE_MAX, bytes, 2, &w), FAL_ELIMIT);
	if (err < 0 || t->puts == PUTS)
		return;
	assert_int_equal(fal_shelf_put(t->s, slot, at, bytes, n, &w), 0); /* the same */
	assert_true(w.at == at && w.n == n && w.slot == slot);
	t->put[t->puts].where = w;
	t->put[t->puts++].bytes = of;
	t->slot[slot].full += n;
}

/* All that was put is read, or is not there any more. */
static void
looks(const struct twin *t)
{
	static uint8_t got[3 * 4096];
	for (unsigned i = 0; i < t->puts; i++) {
		const int is = fal_shelf_read(t->v, &t->put[i].where, got);
		if (is != !t->put[i].gone)
			fail_msg("put %u of %u is %d, and %sgone", i, t->puts, is,
				 t->put[i].gone ? "" : "not ");
		if (is == 1)
			assert_true(are_bytes(t->put[i].bytes, got, t->put[i].where.n));
	}
}

static void
what_is_put_is_read_or_missed(void **state)
{
	static struct twin t;
	struct fal_rng rng = fal_rng_init(drawn_seed(71), FAL_RNG_TEST, 0);
	unsigned gone = 0;
	(void)state;
	for (int round = 0; round < 30; round++) {
		uint64_t version = 0;
		begin(&t, &rng);
		for (int i = 0; i < 100; i++) {
			version += one_in(&rng, 3);
			const uint32_t slot = takes(&t, version - one_in(&rng, 6));
			looks(&t); /* taken is gone, though the bytes are still there */
			for (uint32_t k = fal_rng_below(&rng, 4); k > 0; k--)
				puts_more(&t, &rng, slot);
			looks(&t);
		}
		for (unsigned i = 0; i < t.puts; i++)
			gone += t.put[i].gone;
		over(&t);
	}
	assert_true(gone > 100);
}

static void
no_such_place(void **state)
{
	struct fal_rng rng = fal_rng_init(drawn_seed(72), FAL_RNG_TEST, 0);
	static uint8_t to[3 * 4096];
	struct fal_where good;
	struct twin t;
	(void)state;
	begin(&t, &rng);
	const uint32_t slot = fal_shelf_take(t.s, 5);
	draw_bytes(5, to, t.bytes);
	assert_int_equal(fal_shelf_put(t.s, slot, 0, to, t.bytes, &good), 0);
	const struct fal_where bad[] = {
		{ .slot = FAL_SHELF_SLOTS, .n = 1 },
		{ .slot = UINT32_MAX, .n = 1 },
		{ .slot = 1u << 31 },
		{ .at = 1, .n = (uint32_t)t.bytes },
		{ .at = t.bytes, .n = 1 },
		{ .at = t.bytes + 1 },
		{ .at = UINT64_MAX, .n = 2 },
		{ .at = UINT64_MAX - (t.bytes - 1), .n = (uint32_t)t.bytes },
		{ .at = (uint64_t)1 << 63, .n = 1 },
		{ .n = UINT32_MAX },
		{ .n = (uint32_t)t.bytes + 1 },
	};
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		for (uint64_t g = 0; g < 2; g++) {
			struct fal_where w = bad[i];
			w.generation = g * good.generation;
			const int got = fal_shelf_read(t.v, &w, to);
			if (got != FAL_EFORMAT)
				fail_msg("place %zu is read: %d", i, got);
		}
	assert_int_equal(fal_shelf_read(t.v, &good, to), 1);
	assert_true(are_bytes(5, to, t.bytes));
	good.generation++; /* of one that is to come */
	assert_int_equal(fal_shelf_read(t.v, &good, to), 0);
	over(&t);
}

/* Whoever has the descriptor of a shelf can read. */
static void
readers_only_read(void **state)
{
	struct fal_shelf *s;
	char path[64];
	(void)state;
	assert_int_equal(fal_shelf_new(10000, &s), 0);
	const int fd = fal_shelf_fd(s);
	assert_ptr_equal(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0),
			 MAP_FAILED);
	void *p = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(p, MAP_FAILED);
	assert_int_equal(mprotect(p, 4096, PROT_READ | PROT_WRITE), -1);
	munmap(p, 4096);
	assert_int_equal(ftruncate(fd, 4096), -1);
	assert_int_equal(ftruncate(fd, 1 << 20), -1);
	assert_int_equal(pwrite(fd, "x", 1, 0), -1);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
	/* Nor as another open file. */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	const int again = open(path, O_RDWR | O_CLOEXEC);
	if (again >= 0) {
		assert_int_equal(pwrite(again, "x", 1, 0), -1);
		assert_int_equal(ftruncate(again, 0), -1);
		close(again);
	}
	fal_shelf_free(s);

	struct fal_ring *r;
	assert_int_equal(fal_ring_new(RING, &r), 0);
	const int of_ring = fal_ring_hand(r);
	assert_int_equal(ftruncate(of_ring, 4096), -1);
	assert_int_equal(ftruncate(of_ring, 1 << 30), -1);
	close(of_ring);
	fal_ring_free(r);
}

/* A memfd of so many bytes with these seals. */
static int
memory(size_t bytes, int seals)
{
	const int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

static void
what_is_not_sealed_is_refused(void **state)
{
	enum { FIXED = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };
	const size_t all = FAL_AREA_HEAD + FAL_SHELF_SLOTS * 4096;
	static const struct {
		int lacks, seals;
	} cases[] = {
		{ 0, F_SEAL_FUTURE_WRITE | F_SEAL_GROW | F_SEAL_SEAL },
		{ 0, F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_SEAL },
		{ 0, F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW },
		{ 0, FIXED },
		{ 1, FIXED | F_SEAL_FUTURE_WRITE },
		{ 4096, FIXED | F_SEAL_FUTURE_WRITE },
		{ FAL_AREA_HEAD + FAL_SHELF_SLOTS * 4096, FIXED | F_SEAL_FUTURE_WRITE },
	};
	struct fal_shelf_view *v = NULL;
	struct fal_ring_end *e = NULL;
	struct fal_shelf *s;
	struct fal_ring *r;
	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		const int fd = memory(all - (size_t)cases[i].lacks, cases[i].seals);
		const int err = fal_shelf_see(fd, 4000, &v);
		if (err != FAL_EINVAL)
			fail_msg("case %zu is a shelf: %d", i, err);
		close(fd);
	}
	const int good = memory(all, FIXED | F_SEAL_FUTURE_WRITE);
	assert_int_equal(fal_shelf_see(good, 4096, &v), 0);
	fal_shelf_view_free(v);
	assert_int_equal(fal_shelf_see(good, 4097, &v), FAL_EINVAL);
	assert_int_equal(fal_shelf_see(good, SIZE_MAX, &v), FAL_EINVAL);
	assert_int_equal(fal_shelf_see(good, SIZE_MAX / 3, &v), FAL_EINVAL);
	assert_int_equal(fal_shelf_see(good, SIZE_MAX / 6, &v), FAL_EINVAL);
	assert_int_equal(fal_shelf_see(-1, 4096, &v), FAL_EINVAL);
	close(good);
	const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	assert_int_equal(fal_shelf_see(null, 0, &v), FAL_EINVAL);
	assert_int_equal(fal_ring_join(null, 64, &e), FAL_EINVAL);
	close(null);

	/* Nor is one a ring, or a ring a shelf. */
	assert_int_equal(fal_shelf_new(RING, &s), 0);
	assert_int_equal(fal_ring_new(RING, &r), 0);
	assert_true(fal_ring_join(fal_shelf_fd(s), RING, &e) < 0);
	const int fd = fal_ring_hand(r);
	assert_int_equal(fal_shelf_see(fd, 4096, &v), FAL_EINVAL);
	assert_int_equal(fal_ring_join(fd, 0, &e), FAL_EINVAL);
	assert_int_equal(fal_ring_join(fd, 100, &e), FAL_EINVAL);
	assert_int_equal(fal_ring_join(fd, RING + 64, &e), FAL_EINVAL);
	assert_int_equal(fal_ring_join(fd, SIZE_MAX - 63, &e), FAL_EINVAL);
	close(fd);
	fal_shelf_free(s);
	fal_ring_free(r);
}

#define LARGE ((size_t)60000)

/* Another process, which reads what it hears of: 0: all that it believed was right. */
static int
reader(int fd, int said)
{
	static uint8_t to[LARGE];
	struct fal_shelf_view *v;
	struct fal_where w;
	if (fal_shelf_see(fd, LARGE, &v) < 0)
		return 2;
	while (read(said, &w, sizeof(w)) == sizeof(w)) {
		const uint8_t is = (uint8_t)w.generation;
		if (fal_shelf_read(v, &w, to) != 1)
			continue;
		for (size_t i = 0; i < w.n; i++)
			if (to[i] != is)
				return 1;
	}
	return 0;
}

/* Nobody waits for a reader, and it never believes what was written meanwhile. */
static void
read_while_it_is_written(void **state)
{
	static uint8_t bytes[LARGE];
	struct fal_where w = { 0 };
	struct fal_shelf *s;
	int pipes[2], status;
	(void)state;
	assert_int_equal(fal_shelf_new(LARGE, &s), 0);
	assert_int_equal(pipe(pipes), 0);
	const pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		close(pipes[1]);
		_exit(reader(fal_shelf_fd(s), pipes[0]));
	}
	close(pipes[0]);
	for (uint64_t version = 1; version <= 5000; version++) {
		const uint32_t slot = fal_shelf_take(s, version);
		assert_int_equal(fal_shelf_put(s, slot, 0, bytes, 0, &w), 0);
		memset(bytes, (uint8_t)w.generation, sizeof(bytes));
		assert_int_equal(fal_shelf_put(s, slot, 0, bytes, sizeof(bytes), &w), 0);
		if (write(pipes[1], &w, sizeof(w)) != sizeof(w))
			break; /* its status says why */
	}
	close(pipes[1]);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	fal_shelf_free(s);
}

/* --- rings --- */

/* Both ends of a ring, and what is in it. */
struct ring {
	struct fal_ring *r;
	struct fal_ring_end *e;
	struct {
		struct fal_where where;
		uint64_t bytes;
	} in[RING / 64 + 1];
	size_t first, n; /* of `in`, which wraps too */
	size_t bytes;    /* of messages in it */
	int fd;
};

#define IN_MAX (RING / 64 + 1)

static struct ring ring; /* of the test that runs */

static void
ring_begin(void)
{
	memset(&ring, 0, sizeof(ring));
	assert_int_equal(fal_ring_new(RING, &ring.r), 0);
	ring.fd = fal_ring_hand(ring.r);
	assert_int_equal(fal_ring_join(ring.fd, RING, &ring.e), 0);
}

static void
ring_over(void)
{
	close(ring.fd);
	fal_ring_end_free(ring.e);
	fal_ring_free(ring.r);
}

static bool
ring_put(uint64_t of, size_t n)
{
	static uint8_t bytes[FAL_RECORD_MAX];
	struct fal_where w;
	draw_bytes(of, bytes, n);
	if (!fal_ring_put(ring.e, bytes, n, &w))
		return false;
	assert_int_equal(w.n, n);
	assert_true(ring.n < IN_MAX);
	const size_t at = (ring.first + ring.n++) % IN_MAX;
	ring.in[at].where = w;
	ring.in[at].bytes = of;
	ring.bytes += n;
	assert_true(ring.bytes <= RING);
	return true;
}

static struct fal_where
ring_take(void)
{
	static uint8_t got[FAL_RECORD_MAX];
	const struct fal_where w = ring.in[ring.first].where;
	assert_int_equal(fal_ring_take(ring.r, &w, got), 0);
	assert_true(are_bytes(ring.in[ring.first].bytes, got, w.n));
	ring.first = (ring.first + 1) % IN_MAX;
	ring.n--;
	ring.bytes -= w.n;
	return w;
}

static size_t
some(struct fal_rng *rng)
{
	static const uint32_t most[] = { 1, 64, 5000, 40000, FAL_RECORD_MAX };
	const uint32_t m = most[fal_rng_below(rng, 5)];
	return one_in(rng, 8) ? m : 1 + fal_rng_below(rng, m);
}

/* In their order, unchanged, however often it wraps; where there is no room there is
 * little. */
static void
a_ring_is_a_queue(void **state)
{
	struct fal_rng rng = fal_rng_init(drawn_seed(73), FAL_RNG_TEST, 0);
	unsigned full = 0;
	uint64_t last = 0;
	(void)state;
	ring_begin();
	for (int i = 0; i < 8000; i++) {
		/* Fuller, and emptier, by turns. */
		const bool fills = i / 1000 % 2 == 0;
		if (ring.n > 0 && one_in(&rng, fills ? 5 : 1)) {
			last = ring_take().at;
			continue;
		}
		const size_t n = some(&rng);
		if (ring_put(fal_rng_u64(&rng), n))
			continue;
		full++;
		assert_true(ring.bytes + 64 * ring.n + 2 * FAL_RECORD_MAX + n > RING);
		if (one_in(&rng, 20))
			while (ring.n > 0)
				last = ring_take().at;
	}
	while (ring.n > 0)
		last = ring_take().at;
	assert_true(full > 10);
	assert_true(last > 10 * RING);
	/* Empty, it has room for as much as it is large, but for what the next one wraps
	 * by. */
	while (ring_put(last++, FAL_RECORD_MAX))
		;
	assert_true(ring.bytes > RING - 2 * (FAL_RECORD_MAX + 64));
	assert_false(ring_put(last++, FAL_RECORD_MAX));
	while (ring.n > 0)
		ring_take();
	assert_true(ring_put(last, 1));
	ring_take();
	ring_over();
}

static void
what_lies_nowhere_is_not_taken(void **state)
{
	static uint8_t to[FAL_RECORD_MAX];
	struct fal_rng rng = fal_rng_init(drawn_seed(74), FAL_RNG_TEST, 0);
	(void)state;
	struct fal_where last = { 0 };
	ring_begin();
	for (int round = 0; round < 300; round++) {
		for (uint32_t k = fal_rng_below(&rng, 4); k > 0; k--)
			assert_true(ring_put(fal_rng_u64(&rng), some(&rng)));
		while (ring.n > 1)
			last = ring_take();
		const uint64_t taken = last.at + last.n, all = RING;
		const uint64_t end = (taken / all + 1) * all;
		const struct fal_where bad[] = {
			{ .at = taken + all + 1, .n = 1 },
			{ .at = taken + 2 * all, .n = 1 },
			{ .at = UINT64_MAX, .n = 1 },
			{ .at = UINT64_MAX - 100, .n = 200 },
			{ .at = end - 10, .n = 11 },
			{ .at = taken, .n = FAL_RECORD_MAX + 1 },
			{ .at = end, .n = UINT32_MAX },
			/* Before what was taken; of none, there is none. */
			{ .at = taken - 1, .n = 1 },
			{ .at = last.at, .n = last.n },
			{ .at = fal_rng_below(&rng, (uint32_t)taken + (taken == 0)),
			  .n = 1 },
		};
		for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
			if (i > 6 && last.n == 0)
				continue;
			const int got = fal_ring_take(ring.r, &bad[i], to);
			if (got != FAL_EFORMAT)
				fail_msg("round %d, place %zu is taken: %d", round, i,
					 got);
		}
		while (ring.n > 0)
			last = ring_take();
	}
	ring_over();
}

/* What stands in the memory that both write to may be anything. */
static void
lies_in_the_ring(void **state)
{
	static uint8_t to[FAL_RECORD_MAX], from[FAL_RECORD_MAX];
	struct fal_rng rng = fal_rng_init(drawn_seed(75), FAL_RNG_TEST, 0);
	(void)state;
	ring_begin();
	uint64_t *head =
		mmap(NULL, FAL_AREA_HEAD, PROT_READ | PROT_WRITE, MAP_SHARED, ring.fd, 0);
	assert_ptr_not_equal(head, MAP_FAILED);
	uint64_t taken = 0;
	for (int i = 0; i < 3000; i++) {
		const uint64_t lies[] = { 0, UINT64_MAX,
					  taken + fal_rng_below(&rng, 9999),
					  fal_rng_u64(&rng), taken };
		struct fal_where w;
		head[0] = lies[fal_rng_below(&rng, 5)];
		if (fal_ring_put(ring.e, from, some(&rng), &w)) {
			assert_true(w.at % RING + w.n <= RING);
			/* It may be far ahead, as nothing was waited for. */
			const int got = fal_ring_take(ring.r, &w, to);
			assert_int_equal(got, w.at - taken > RING ? FAL_EFORMAT : FAL_OK);
			if (got == 0)
				taken = w.at + w.n;
			assert_true(got < 0 || head[0] == taken);
		}
		if (taken > 0) {
			head[0] = 0;
			w = (struct fal_where){
				.at = fal_rng_below(&rng, (uint32_t)taken), .n = 1
			};
			assert_int_equal(fal_ring_take(ring.r, &w, to), FAL_EFORMAT);
		}
	}
	munmap(head, FAL_AREA_HEAD);
	ring_over();
}

/* --- records --- */

static void
words(void **state)
{
	struct fal_rng rng = fal_rng_init(drawn_seed(76), FAL_RNG_TEST, 0);
	(void)state;
	for (int i = 0; i < 300; i++) {
		const struct fal_where w = { .at = fal_rng_u64(&rng),
					     .generation = fal_rng_u64(&rng),
					     .n = fal_rng_u32(&rng),
					     .slot = fal_rng_u32(&rng) };
		const uint64_t shelf = fal_rng_u64(&rng), size = fal_rng_u64(&rng);
		const struct fal_memory all[] = {
			{ .word = FAL_MEMORY_OFFER, .shelf = shelf, .ring = size },
			{ .word = FAL_MEMORY_TAKEN },
			{ .word = FAL_MEMORY_SENT, .where = w },
		};
		const struct fal_memory *m = &all[i % 3];
		uint8_t bytes[FAL_MEMORY_BYTES + 1] = { 0 };
		struct fal_memory got;
		const size_t n = fal_memory_put(m, bytes);
		assert_in_range(n, 1, FAL_MEMORY_BYTES);
		for (size_t k = 0; k <= sizeof(bytes); k++) {
			/* Behind its end: another tool would see what is read there. */
			uint8_t *copy = malloc(k + (k == 0));
			memcpy(copy, bytes, k);
			assert_int_equal(fal_memory_get(copy, k, &got),
					 k == n ? FAL_OK : FAL_EFORMAT);
			free(copy);
		}
		assert_int_equal(fal_memory_get(bytes, n, &got), 0);
		assert_int_equal(got.word, m->word);
		assert_true(got.shelf == m->shelf && got.ring == m->ring);
		assert_memory_equal(&got.where, &m->where, sizeof(w));
		do
			bytes[0] = (uint8_t)fal_rng_u32(&rng);
		while (bytes[0] >= FAL_MEMORY_OFFER && bytes[0] <= FAL_MEMORY_SENT);
		assert_int_equal(fal_memory_get(bytes, n, &got), FAL_EFORMAT);
	}
}

/* Both ends of one direction. */
struct pair {
	struct fal_writer *w;
	struct fal_reader *r;
};

static struct pair
pair(void)
{
	uint8_t key[FAL_KEY_BYTES];
	struct pair p = { fal_writer_new((size_t)1 << 20), fal_reader_new() };
	struct fal_seal tx, rx;
	memset(key, 9, sizeof(key));
	assert_int_equal(fal_seal_init(&tx, FAL_SUITE_CHACHA20_POLY1305, key), 0);
	assert_int_equal(fal_seal_init(&rx, FAL_SUITE_CHACHA20_POLY1305, key), 0);
	assert_true(p.w != NULL && p.r != NULL);
	fal_writer_key(p.w, &tx);
	fal_reader_key(p.r, &rx);
	return p;
}

static void
wipe(struct pair *p)
{
	fal_writer_free(p->w);
	fal_reader_free(p->r);
}

/* With a ring between them: the writer has it, and the reader where it is told. */
static struct pair
pair_of_ring(bool reader_too)
{
	struct pair p = pair();
	struct fal_ring_end *e;
	struct fal_ring *r;
	assert_int_equal(fal_ring_new(RING, &r), 0);
	const int fd = fal_ring_hand(r);
	assert_int_equal(fal_ring_join(fd, RING, &e), 0);
	close(fd);
	fal_writer_ring(p.w, e);
	if (reader_too)
		fal_reader_ring(p.r, r);
	else
		fal_ring_free(r);
	return p;
}

/* What was read last. */
struct heard {
	const uint8_t *msg;
	size_t used, n;
};

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

/* What its reader says to that. */
static int
hears(struct pair *p)
{
	struct heard h;
	struct fal_buf b = take(p);
	const int got = fal_reader_next(p->r, b.p, b.n, &h.used, &h.msg, &h.n);
	fal_buf_free(&b);
	return got;
}

static void
messages_by_a_ring(void **state)
{
	static uint8_t msg[FAL_RECORD_MAX];
	struct fal_rng rng = fal_rng_init(drawn_seed(77), FAL_RNG_TEST, 0);
	struct pair p = pair_of_ring(true);
	uint64_t beside = 0;
	(void)state;
	for (int i = 0; i < 1000; i++) {
		const size_t n = some(&rng);
		const bool bulk = !one_in(&rng, 4);
		const bool by_ring = bulk && n >= FAL_WRITER_RING_MIN;
		const uint64_t of = fal_rng_u64(&rng);
		struct heard h;
		draw_bytes(of, msg, n);
		assert_int_equal(fal_writer_put(p.w, msg, n,
						bulk ? FAL_SEND_BULK : FAL_SEND_CONTROL),
				 0);
		struct fal_buf b = take(&p);
		const size_t wire = by_ring ? 1 + FAL_WHERE_BYTES : n;
		assert_int_equal(b.n, FAL_RECORD_HEAD + wire + FAL_SEAL_TAG);
		assert_int_equal(b.p[4],
				 by_ring ? FAL_RECORD_MEMORY : FAL_RECORD_SESSION);
		assert_int_equal(fal_reader_next(p.r, b.p, b.n, &h.used, &h.msg, &h.n),
				 FAL_READ_MESSAGE);
		assert_int_equal(h.used, b.n);
		assert_int_equal(h.n, n);
		assert_true(are_bytes(of, h.msg, n));
		fal_buf_free(&b);
		beside += by_ring ? n : 0;
		assert_true(fal_writer_beside(p.w) == beside);
		assert_true(fal_reader_beside(p.r) == beside);
	}
	wipe(&p);
}

/* In their order, with those that found no room. */
static void
a_full_ring_is_no_end(void **state)
{
	static uint8_t msg[FAL_RECORD_MAX];
	struct fal_rng rng = fal_rng_init(drawn_seed(78), FAL_RNG_TEST, 0);
	struct pair p = pair_of_ring(true);
	uint64_t put = 0, got = 0, by_stream = 0;
	(void)state;
	while (put < 400) {
		const size_t n = FAL_WRITER_RING_MIN + fal_rng_below(&rng, 60000);
		draw_bytes(put, msg, n);
		if (fal_writer_put(p.w, msg, n, FAL_SEND_BULK) == 0)
			put++;
		else
			break; /* what goes by the stream fills the queue */
	}
	while (got < put) {
		struct heard h;
		struct fal_buf b = take(&p);
		by_stream += b.p[4] == FAL_RECORD_SESSION;
		assert_int_equal(fal_reader_next(p.r, b.p, b.n, &h.used, &h.msg, &h.n),
				 FAL_READ_MESSAGE);
		assert_true(are_bytes(got++, h.msg, h.n));
		fal_buf_free(&b);
	}
	assert_true(by_stream > 5 && by_stream < put);
	assert_true(fal_writer_idle(p.w));
	wipe(&p);
}

static void
sent_where_nothing_is(void **state)
{
	static uint8_t msg[5000];
	static const struct fal_where bad[] = {
		{ .at = RING + 1, .n = 1 },   { .at = RING - 1, .n = 2 },
		{ .n = FAL_RECORD_MAX + 1 },  { .n = UINT32_MAX },
		{ .at = UINT64_MAX, .n = 1 },
	};
	(void)state;
	struct pair p = pair_of_ring(false);
	assert_int_equal(fal_writer_put(p.w, msg, sizeof(msg), FAL_SEND_BULK), 0);
	assert_int_equal(hears(&p), FAL_EFORMAT); /* it has no ring */
	wipe(&p);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		const struct fal_memory m = { .word = FAL_MEMORY_SENT, .where = bad[i] };
		p = pair_of_ring(true);
		assert_int_equal(fal_writer_put_memory(p.w, &m, true), 0);
		assert_int_equal(hears(&p), FAL_EFORMAT);
		wipe(&p);
	}
}

static struct fal_shared_pool *pool; /* of all publications */

/* A version of a job, on a shelf or not. */
static struct fal_shared *
publication(uint64_t id, uint32_t count, uint64_t version, struct fal_shelf *shelf)
{
	const struct fal_shared_opt opt = { .pool = pool,
					    .publication = id,
					    .count = count,
					    .ad = "job",
					    .ad_n = 3,
					    .version = version,
					    .shelf = shelf };
	struct fal_shared *s;
	assert_int_equal(fal_shared_new(&opt, &s), 0);
	return s;
}

static struct fal_publication
announced(const struct fal_shared *s)
{
	return (struct fal_publication){ .id = fal_shared_publication(s),
					 .count = fal_shared_count(s),
					 .key = fal_shared_key(s),
					 .ad = "job",
					 .ad_n = 3,
					 .version = fal_shared_version(s),
					 .first = 7,
					 .blocks = 9,
					 .order = 8 };
}

#define COUNT_MAX 6
#define HEAD_MAX 40
#define REST_MAX 3000

/* A publication and its readers' side: what each message is, and where it is wanted. */
struct told {
	struct fal_shared *s;
	uint32_t count;
	struct {
		size_t head, rest;
		uint64_t bytes; /* of both, one behind the other */
		bool gone;      /* it is not on the shelf any more */
	} msg[COUNT_MAX];
	size_t full; /* bytes that it has on the shelf */
	/* What is asked of the place function, and what it says. */
	enum { NOWHERE, RIGHT, ELSEWHERE } wants;
	uint32_t asked;
	uint8_t room[HEAD_MAX + REST_MAX + 2];
};

static uint8_t *
on_place(void *arg, const struct fal_publication *pub, uint32_t index, size_t n,
	 size_t *head)
{
	struct told *t = arg;
	assert_int_equal(pub->version, fal_shared_version(t->s));
	assert_in_range(index, 0, t->count - 1);
	assert_int_equal(n, t->msg[index].head + t->msg[index].rest);
	t->asked++;
	if (t->wants == NOWHERE)
		return NULL;
	*head = t->msg[index].head - (t->wants == ELSEWHERE && t->msg[index].head > 0);
	return t->room + 1;
}

/* One message. */
static int
add_text(struct fal_shared *s, const struct fal_aead_text *msg, size_t at)
{
	const struct fal_shared_text text = { *msg, at, fal_shared_made(s) };
	return fal_shared_add_texts(s, &text, 1);
}

/* Publishes a version, of drawn messages. */
static void
tell(struct told *t, struct fal_rng *rng, uint64_t id, uint64_t version,
     struct fal_shelf *shelf)
{
	static uint8_t bytes[HEAD_MAX + REST_MAX];
	size_t all = 0, beside = 0;
	*t = (struct told){ .count = 1 + fal_rng_below(rng, COUNT_MAX) };
	t->s = publication(id, t->count, version, shelf);
	for (uint32_t i = 0; i < t->count; i++) {
		const size_t head = fal_rng_below(rng, HEAD_MAX + 1);
		const size_t rest = one_in(rng, 5) ? 0 : fal_rng_below(rng, REST_MAX + 1);
		t->msg[i].head = head;
		t->msg[i].rest = rest;
		t->msg[i].bytes = fal_rng_u64(rng);
		draw_bytes(t->msg[i].bytes, bytes, head + rest);
		const struct fal_aead_text text = { bytes, head, bytes + head, rest };
		assert_int_equal(add_text(t->s, &text, t->full), 0);
		assert_int_equal(fal_shared_beside(t->s, i), rest);
		t->full += rest;
		size_t n;
		const uint8_t *wire = fal_shared_record(t->s, i, &n);
		assert_int_equal(wire[5], rest > 0 ? FAL_RECORD_SHELF : 0);
		assert_int_equal(n, FAL_RECORD_SHARED_HEAD + head + FAL_SEAL_TAG +
					    (rest > 0 ? FAL_WHERE_BYTES : 0));
		all += n;
		beside += rest;
	}
	assert_int_equal(fal_shared_bytes(t->s), all + beside);
}

/* What the reader is to say to record i. */
static int
due(const struct told *t, uint32_t i, bool places)
{
	const bool shelf = t->msg[i].rest > 0;
	if (shelf && t->msg[i].gone)
		return FAL_READ_MISSED;
	if (!places || t->wants == NOWHERE)
		return FAL_READ_MESSAGE;
	/* The beginning of what is on a shelf is what it is. */
	return shelf && t->wants == ELSEWHERE && t->msg[i].head > 0 ? FAL_READ_MESSAGE
								    : FAL_READ_PLACED;
}

/* Record i was read as `got`: is all of it where it should be? */
static void
is_there(const struct told *t, uint32_t i, int got, const struct heard *h)
{
	static uint8_t joined[HEAD_MAX + REST_MAX];
	const size_t n = t->msg[i].head + t->msg[i].rest;
	assert_int_equal(t->room[0], 0x55);
	assert_int_equal(t->room[1 + n], 0x55);
	if (got == FAL_READ_MESSAGE) {
		assert_int_equal(h->n, n);
		assert_true(are_bytes(t->msg[i].bytes, h->msg, n));
		return;
	}
	assert_true(h->n <= t->msg[i].head);
	memcpy(joined, h->msg, h->n);
	memcpy(joined + h->n, t->room + 1, n - h->n);
	assert_true(are_bytes(t->msg[i].bytes, joined, n));
}

/* Reads record i, which is of what nobody waits for any more, or not. */
static int
reads(struct fal_reader *r, struct told *t, uint32_t i, bool missed, bool places)
{
	struct heard h;
	size_t n;
	const uint8_t *wire = fal_shared_record(t->s, i, &n);
	uint8_t *copy = malloc(n);
	const uint32_t asked = t->asked;
	const uint64_t beside = fal_reader_beside(r);
	memcpy(copy, wire, n);
	memset(t->room, 0x55, sizeof(t->room));
	const int got = fal_reader_next(r, copy, n, &h.used, &h.msg, &h.n);
	assert_int_equal(got, missed ? FAL_READ_NOTHING : due(t, i, places));
	assert_int_equal(h.used, n);
	assert_int_equal(t->asked - asked, places && !missed);
	if (got == FAL_READ_MESSAGE || got == FAL_READ_PLACED)
		is_there(t, i, got, &h);
	assert_int_equal(fal_reader_beside(r) - beside,
			 got == FAL_READ_MESSAGE || got == FAL_READ_PLACED
				 ? t->msg[i].rest
				 : 0);
	if (got == FAL_READ_MISSED) {
		const struct fal_publication *pub = fal_reader_missed(r);
		assert_int_equal(pub->id, fal_shared_publication(t->s));
		assert_int_equal(pub->version, fal_shared_version(t->s));
		assert_true(pub->order == 8 && pub->first == 7 && pub->blocks == 9 &&
			    pub->key == NULL);
	}
	free(copy);
	return got;
}

/* The places go to others, with all that is behind record i. */
static void
overwrite(struct told *t, uint32_t i, struct fal_shelf *shelf)
{
	for (uint64_t k = 1; k <= FAL_SHELF_SLOTS; k++)
		fal_shelf_take(shelf, fal_shared_version(t->s) + k);
	for (; i < t->count; i++)
		t->msg[i].gone = true;
}

/* What lies on a shelf is read, to where it is wanted, or missed; then the rest of its
 * publication is nobody's, and the next one comes. */
static void
publications_on_a_shelf(void **state)
{
	static struct told t;
	struct fal_rng rng = fal_rng_init(drawn_seed(79), FAL_RNG_TEST, 0);
	unsigned count[FAL_READ_MISSED + 1] = { 0 };
	(void)state;
	for (int round = 0; round < 60; round++) {
		const size_t bytes = COUNT_MAX * REST_MAX;
		const bool places = !one_in(&rng, 3);
		struct fal_shelf_view *v;
		struct fal_shelf *shelf;
		struct pair p = pair();
		assert_int_equal(fal_shelf_new(bytes, &shelf), 0);
		assert_int_equal(fal_shelf_see(fal_shelf_fd(shelf), bytes, &v), 0);
		fal_reader_shelf(p.r, v);
		if (places)
			fal_reader_place(p.r, on_place, &t);
		for (uint64_t id = 1; id <= 10; id++) {
			bool missed = false;
			tell(&t, &rng, id, 10 * id, shelf);
			const struct fal_publication pub = announced(t.s);
			assert_int_equal(fal_reader_expect(p.r, &pub), 0);
			const uint32_t from = fal_rng_below(&rng, 2 * t.count);
			for (uint32_t i = 0; i < t.count; i++) {
				if (i == from)
					overwrite(&t, i, shelf);
				t.wants = fal_rng_below(&rng, 3);
				const int got = reads(p.r, &t, i, missed, places);
				missed |= got == FAL_READ_MISSED;
				count[got]++;
			}
			/* And it is through, either way. */
			reads(p.r, &t, 0, true, places);
			fal_shared_drop(t.s);
		}
		wipe(&p);
		fal_shelf_free(shelf);
	}
	assert_true(count[FAL_READ_NOTHING] > 20 && count[FAL_READ_MISSED] > 20);
	assert_true(count[FAL_READ_MESSAGE] > 20 && count[FAL_READ_PLACED] > 20);
}

/* Shards of a version are in one place; one that it does not hold is not begun. */
static void
shards_share_a_place(void **state)
{
	static uint8_t bytes[2000];
	struct fal_where a, b;
	struct fal_shelf *shelf;
	(void)state;
	assert_int_equal(fal_shelf_new(sizeof(bytes), &shelf), 0);
	struct fal_shared *s = publication(1, 2, 7, shelf),
			  *t = publication(2, 1, 7, shelf);
	const struct fal_aead_text text = { "", 0, bytes, sizeof(bytes) };
	assert_int_equal(fal_shelf_take(shelf, 7), 0);
	assert_int_equal(fal_shelf_put(shelf, 0, 0, bytes, 1, &a), 0);
	assert_int_equal(add_text(s, &text, 1), FAL_ELIMIT);
	assert_int_equal(fal_shared_made(s), 0);
	assert_int_equal(add_text(s, &text, 0), 0);
	assert_int_equal(add_text(t, &text, 0), 0);
	assert_int_equal(fal_shelf_put(shelf, 0, 0, bytes, 1, &b), 0);
	assert_true(a.generation == b.generation);
	fal_shared_drop(s);
	fal_shared_drop(t);
	fal_shelf_free(shelf);
}

/* A shelf and a reader of it, and one record sealed as it should be, with this inside. */
static int
opens(const void *inside, size_t n, uint8_t flags, bool has_shelf)
{
	struct fal_shelf_view *v;
	struct fal_shelf *shelf;
	struct pair p = pair();
	struct heard h;
	assert_int_equal(fal_shelf_new(100000, &shelf), 0);
	assert_int_equal(fal_shelf_see(fal_shelf_fd(shelf), 100000, &v), 0);
	if (has_shelf)
		fal_reader_shelf(p.r, v);
	else
		fal_shelf_view_free(v);
	struct fal_shared *s = publication(1, 1, 1, NULL);
	struct fal_publication pub = announced(s);
	assert_int_equal(fal_reader_expect(p.r, &pub), 0);
	assert_int_equal(fal_aead_new(FAL_SUITE_CHACHA20_POLY1305, FAL_LIBRARY_ANY,
				      &pub.aead),
			 0);
	const size_t all = FAL_RECORD_SHARED_HEAD + n + FAL_SEAL_TAG;
	uint8_t *wire = malloc(all);
	const struct fal_aead_text text = { .p = inside, .n = n };
	assert_int_equal(fal_record_shared_seal(&pub, 0, flags, &text, wire), 0);
	const int got = fal_reader_next(p.r, wire, all, &h.used, &h.msg, &h.n);
	fal_aead_free(pub.aead);
	free(wire);
	fal_shared_drop(s);
	fal_shelf_free(shelf);
	wipe(&p);
	return got;
}

/* The same, for a message of a beginning and this. */
static int
opens_where(size_t head, struct fal_where w, uint8_t flags, bool has_shelf)
{
	static uint8_t inside[FAL_RECORD_MAX];
	fal_where_put(&w, inside + head);
	return opens(inside, head + FAL_WHERE_BYTES, flags, has_shelf);
}

static void
odd_records_of_a_shelf(void **state)
{
	const uint8_t shelf = FAL_RECORD_SHELF, both = FAL_RECORD_SHELF | FAL_RECORD_ZSTD;
	const uint32_t most = FAL_RECORD_MAX;
	static const uint8_t zeros[FAL_WHERE_BYTES];
	const struct fal_where one = { .n = 1 };
	(void)state;
	assert_int_equal(opens_where(5, one, shelf, true), FAL_READ_MESSAGE);
	assert_int_equal(opens_where(5, one, shelf, false), FAL_EFORMAT);
	assert_int_equal(opens_where(5, one, both, true), FAL_EFORMAT);
	assert_int_equal(opens_where(5, one, FAL_RECORD_ZSTD, true), FAL_EFORMAT);
	for (size_t n = 0; n <= FAL_WHERE_BYTES; n++)
		assert_int_equal(opens(zeros, n, shelf, true),
				 n < FAL_WHERE_BYTES ? FAL_EFORMAT : FAL_READ_MESSAGE);
	/* The whole is no longer than a message may be. */
	for (uint32_t head = 0; head < most - FAL_WHERE_BYTES; head += 9001)
		for (uint32_t more = 0; more < 2; more++) {
			const struct fal_where w = { .n = most - head + more };
			assert_int_equal(opens_where(head, w, shelf, true),
					 more ? FAL_EFORMAT : FAL_READ_MESSAGE);
		}
	const struct fal_where nowhere[] = {
		{ .n = UINT32_MAX },
		{ .at = 100000, .n = 1 },
		{ .at = UINT64_MAX, .n = 1 },
		{ .slot = FAL_SHELF_SLOTS, .n = 1 },
	};
	for (size_t i = 0; i < sizeof(nowhere) / sizeof(*nowhere); i++)
		assert_int_equal(opens_where(3, nowhere[i], shelf, true), FAL_EFORMAT);
	const struct fal_where old = { .n = 1, .generation = 77 };
	assert_int_equal(opens_where(3, old, shelf, true), FAL_READ_MISSED);
}

enum { BIT_SHELF, BIT_SENT, BIT_OFFER, BIT_TAKEN, BIT_KINDS };

/* A record of that kind, with this bit flipped, to a reader that would take it: what it
 * says, and its bits. */
static int
flipped(int kind, size_t bit, size_t *bits)
{
	static const struct fal_memory said[BIT_KINDS] = {
		[BIT_OFFER] = { .word = FAL_MEMORY_OFFER, .shelf = 5000, .ring = 6400 },
		[BIT_TAKEN] = { .word = FAL_MEMORY_TAKEN },
	};
	static uint8_t bytes[5000];
	struct pair p = pair_of_ring(true);
	struct fal_shelf_view *v;
	struct fal_shelf *shelf;
	struct heard h;
	assert_int_equal(fal_shelf_new(sizeof(bytes), &shelf), 0);
	assert_int_equal(fal_shelf_see(fal_shelf_fd(shelf), sizeof(bytes), &v), 0);
	fal_reader_shelf(p.r, v);
	struct fal_shared *s = publication(1, 1, 1, shelf);
	const struct fal_aead_text text = { "head", 4, bytes, sizeof(bytes) };
	const struct fal_publication pub = announced(s);
	assert_int_equal(add_text(s, &text, 0), 0);
	assert_int_equal(fal_reader_expect(p.r, &pub), 0);
	if (kind == BIT_SHELF)
		assert_int_equal(fal_writer_put_shared(p.w, s), 0);
	else if (kind == BIT_SENT)
		assert_int_equal(fal_writer_put(p.w, bytes, 5000, FAL_SEND_BULK), 0);
	else
		assert_int_equal(fal_writer_put_memory(p.w, &said[kind], false), 0);
	struct fal_buf b = take(&p);
	*bits = 8 * b.n;
	if (bit < *bits)
		b.p[bit / 8] ^= (uint8_t)(1u << bit % 8);
	const int got = fal_reader_next(p.r, b.p, b.n, &h.used, &h.msg, &h.n);
	fal_buf_free(&b);
	fal_shared_drop(s);
	fal_shelf_free(shelf);
	wipe(&p);
	return got;
}

static void
every_changed_bit_is_refused(void **state)
{
	static const int whole[BIT_KINDS] = { FAL_READ_MESSAGE, FAL_READ_MESSAGE,
					      FAL_READ_OFFER, FAL_READ_TAKEN };
	static const size_t inside[BIT_KINDS] = { FAL_RECORD_SHARED_HEAD + 4 +
							  FAL_WHERE_BYTES,
						  FAL_RECORD_HEAD + 1 + FAL_WHERE_BYTES,
						  FAL_RECORD_HEAD + 17,
						  FAL_RECORD_HEAD + 1 };
	(void)state;
	for (int kind = 0; kind < BIT_KINDS; kind++) {
		size_t bits = 1, refused = 0;
		for (size_t bit = 0; bit < bits; bit++)
			refused += flipped(kind, bit, &bits) < 0;
		assert_int_equal(bits, 8 * (inside[kind] + FAL_SEAL_TAG));
		assert_int_equal(refused, bits);
		assert_int_equal(flipped(kind, bits, &bits), whole[kind]);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_put_is_read_or_missed),
		cmocka_unit_test(no_such_place),
		cmocka_unit_test(readers_only_read),
		cmocka_unit_test(what_is_not_sealed_is_refused),
		cmocka_unit_test(read_while_it_is_written),
		cmocka_unit_test(a_ring_is_a_queue),
		cmocka_unit_test(what_lies_nowhere_is_not_taken),
		cmocka_unit_test(lies_in_the_ring),
		cmocka_unit_test(words),
		cmocka_unit_test(messages_by_a_ring),
		cmocka_unit_test(a_full_ring_is_no_end),
		cmocka_unit_test(sent_where_nothing_is),
		cmocka_unit_test(publications_on_a_shelf),
		cmocka_unit_test(shards_share_a_place),
		cmocka_unit_test(odd_records_of_a_shelf),
		cmocka_unit_test(every_changed_bit_is_refused),
	};
	signal(SIGPIPE, SIG_IGN);
	cmocka_set_message_output(CM_OUTPUT_TAP);
	pool = fal_shared_pool_new(NULL);
	const int failed = cmocka_run_group_tests(tests, NULL, NULL);
	fal_shared_pool_free(pool);
	return failed;
}
