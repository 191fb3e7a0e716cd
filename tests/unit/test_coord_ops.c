/* Whoever is called by the coordinator may not call it, not even to ask: it asserts.  And
 * what shards are told of moves. */
#include "test_coord.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum op { NONE, SEND, MODEL, CLOSE, TRACE, CAME, WENT, ORDER, NEXT, OPS };

static enum op asks; /* which of them does */
static uint32_t calls[OPS];
static bool silent;   /* shards say nothing */
static uint32_t told; /* epoch of the map that they were told of last */
static uint32_t kept; /* versions that they were told to keep last, before that */

static void
called(enum op op)
{
	calls[op]++;
	if (asks == op && coord != NULL)
		(void)fal_coord_status(coord);
}

static void
on_send(void *arg, uint32_t peer, const struct fal_buf *msg)
{
	(void)arg;
	(void)peer;
	(void)msg;
	called(SEND);
}

static void
on_model(void *arg, uint32_t peer, const struct fal_coord_model *m)
{
	(void)arg;
	(void)peer;
	(void)m;
	called(MODEL);
}

static void
on_close(void *arg, uint32_t peer, const char *why)
{
	(void)arg;
	(void)peer;
	(void)why;
	called(CLOSE);
}

static void
on_line(void *arg, const char *line, size_t n)
{
	on_trace(arg, line, n);
	called(TRACE);
}

static void
on_came(void *arg, uint32_t peer, const char *name, const char *key)
{
	(void)arg;
	(void)peer;
	(void)name;
	(void)key;
	called(CAME);
}

static void
on_went(void *arg, uint32_t peer, const char *name, const char *why)
{
	(void)arg;
	(void)peer;
	(void)name;
	(void)why;
	called(WENT);
}

static int
on_order(void *arg, const struct fal_shard_order *o)
{
	(void)arg;
	called(ORDER);
	if (o->kind == FAL_ORDER_KEEP && told == 0)
		kept = o->versions;
	if (o->kind == FAL_ORDER_MAP)
		told = o->map->epoch;
	return fal_rack_order(job.rack, o);
}

static int
on_push(void *arg, uint32_t session, const struct fal_msg *m, struct fal_diag *d)
{
	(void)arg;
	return fal_rack_msg(job.rack, session, m, d);
}

static bool
on_next(void *arg, uint32_t *shard, struct fal_shard_say *out)
{
	(void)arg;
	called(NEXT);
	return !silent && fal_rack_next(job.rack, shard, out);
}

/* A job of so many shards, of a block each. */
static void
begin(uint32_t shards)
{
	static const float init[2 * FAL_BLOCK];
	const struct fal_policy policy = { .rule = { .scheme = FAL_EPSP } };
	const struct fal_coord_ops ops = { .shards = { &job, on_order, on_push, on_next },
					   .send = on_send,
					   .model = on_model,
					   .close = on_close,
					   .trace = on_line,
					   .came = on_came,
					   .went = on_went };
	struct fal_coord_conf conf = {
		.name = "test",
		.hash = "00",
		.policy = &policy,
		.policy_by = "job",
		.grid = { .samples = 8, .batch = 8, .task = 2, .epochs = 1 },
		.params = shards * FAL_BLOCK,
		.shards = shards,
		.min_workers = 1
	};
	conf.schedule.lr = 0.1;
	check(racked_new(conf, ops, init, now, &job), 0, "coordinator");
	coord = job.coord;
}

/* Two workers, of one process: the older session ends; then the other one leaves. */
static void
play(void)
{
	begin(1);
	join(1);
	open_as(2, 1);
	check(hello(2, "w2", 1), 0, "HELLO");
	check(fal_coord_gone(coord, now, 2, "gone"), 0, "gone");
}

static void
all_are_called(void **state)
{
	(void)state;
	asks = NONE;
	play();
	for (enum op op = SEND; op < OPS; op++)
		if (calls[op] == 0)
			fail_msg("op %d is never called", (int)op);
	racked_finish(&job, now, "enough");
	assert_int_equal(audited().clocks, 0);
}

/* How a process ends in which this one asks the coordinator. */
static int
ends(enum op op)
{
	int status;
	const pid_t child = fork();
	if (child == 0) {
		const struct rlimit none = { 0, 0 };
		setrlimit(RLIMIT_CORE, &none);
		dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
		asks = op;
		play();
		_exit(0);
	}
	assert_true(child > 0);
	assert_int_equal(waitpid(child, &status, 0), child);
	return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void
none_may_call_back(void **state)
{
	(void)state;
	for (enum op op = NONE; op < OPS; op++)
		if (ends(op) != (op == NONE ? 0 : SIGABRT))
			fail_msg("op %d may call back", (int)op);
}

/* One has both blocks; what the shards were told: its epoch. */
static uint32_t
move_to(uint32_t shard)
{
	struct fal_map map = *fal_coord_map(coord);
	map.of[shard] = (struct fal_extent){ 0, 2 };
	map.of[1 - shard] = (struct fal_extent){ 0, 0 };
	told = kept = 0;
	check(fal_coord_move(coord, now, &map, "lab", &diag), 0, "a move");
	return told;
}

/* The epoch of a move that never was is not used again: its pieces may still come. */
static void
epochs_are_used_up(void **state)
{
	(void)state;
	asks = NONE;
	begin(2);
	silent = true;
	assert_int_equal(move_to(0), 2);
	assert_true(fal_coord_moves(coord));
	check(fal_coord_stay(coord, now), 0, "stay");
	assert_int_equal(fal_coord_map(coord)->epoch, 1);
	silent = false;
	assert_int_equal(move_to(1), 3);
	check(fal_coord_heard(coord, now), 0, "heard");
	assert_false(fal_coord_moves(coord));
	assert_int_equal(fal_coord_map(coord)->epoch, 3);
	assert_int_equal(fal_coord_map(coord)->of[1].count, 2);
}

/* A version that nobody can name any more does not move with the one that holds. */
static void
only_what_is_needed_moves(void **state)
{
	(void)state;
	asks = NONE;
	begin(2);
	assert_int_equal(move_to(0), 2);
	assert_int_equal(kept, 1);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(none_may_call_back, end),
		cmocka_unit_test_teardown(all_are_called, end),
		cmocka_unit_test_teardown(epochs_are_used_up, end),
		cmocka_unit_test_teardown(only_what_is_needed_moves, end),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
