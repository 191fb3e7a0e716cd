/* Callbacks may not call the coordinator, not even to ask, which it asserts.  Commands of
 * moves.  Reports of shards that cannot be true. */
#include "test_coord.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum op { NONE, SEND, MODEL, CLOSE, TRACE, CAME, WENT, ORDER, OPS };

static enum op asks; /* the callback that calls the coordinator */
static uint32_t calls[OPS];
static bool silent;           /* shards do not answer orders */
static uint32_t told;         /* epoch of the last map in a command */
static uint32_t kept;         /* the last count of versions to retain, before the map */
static struct fal_map holds;  /* the last map in ops.moved */
static struct standin worker; /* session 1 */
static bool is_late;          /* the results of pushes come later, */
static struct fal_shard_result late;
static bool steps_wait; /* the results of steps come later, */
static struct fal_shard_result steps;
static uint32_t here; /* workers of the last snapshot */
static struct racked_tickets tickets;

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
	struct fal_msg m;
	(void)arg;
	check(fal_msg_get(msg->p, msg->n, &m), 0, "parse what was sent");
	if (peer == 1)
		assert_true(standin_told(&worker, &m));
	if (m.type == FAL_MSG_TICKET)
		racked_note(&tickets, peer, &m);
	called(SEND);
}

static void
on_model(void *arg, uint32_t peer, const struct fal_coord_publication *m)
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
on_order(void *arg, const struct fal_shard_order *o, struct fal_shard_result *r)
{
	struct fal_shard_result unheard = { 0 };
	(void)arg;
	called(ORDER);
	if (o->kind == FAL_ORDER_RETAIN && told == 0)
		kept = o->versions;
	if (o->kind == FAL_ORDER_MIGRATE_BEGIN)
		told = o->map->epoch;
	const bool waits = steps_wait && o->kind == FAL_ORDER_STEP;
	if (silent || waits)
		r = silent ? &unheard : &steps;
	const int err = fal_shard_set_order(job.shard_set, o, r);
	fal_shard_result_free(&unheard);
	return err;
}

static int
on_push(void *arg, uint32_t session, const struct fal_msg *m, struct fal_shard_result *r,
	struct fal_diag *d)
{
	(void)arg;
	return fal_shard_set_push_msg(job.shard_set, session, m, is_late ? &late : r, d);
}

static void
on_marked(void *arg, const struct fal_coord_checkpoint *is)
{
	(void)arg;
	here = is->here;
}

static void
on_moved(void *arg, const struct fal_map *map, int err)
{
	(void)arg;
	if (err == FAL_OK)
		holds = *map;
}

/* A job of so many shards, of a block each.  An epoch has one clock; with several, a
 * clock may begin while the one before is open, no round ends before it is complete, and
 * the last version is evaluated. */
static void
begin_epochs(uint32_t shards, uint32_t epochs)
{
	static const float init[2 * FAL_BLOCK];
	const struct fal_policy policy = { .rule = { .scheme = FAL_EPSP,
						     .slack = epochs > 1 } };
	const struct fal_coord_ops ops = { .shards = { &job, on_order, on_push, NULL },
					   .send = on_send,
					   .model = on_model,
					   .close = on_close,
					   .trace = on_line,
					   .came = on_came,
					   .went = on_went,
					   .moved = on_moved,
					   .marked = on_marked };
	struct fal_coord_conf conf = {
		.name = "test",
		.hash = "00",
		.policy = &policy,
		.policy_by = "job",
		.grid = { .samples = 8, .batch = 8, .task = 2, .epochs = epochs },
		.test_samples = epochs > 1,
		.skips = epochs > 1,
		.params = shards * FAL_BLOCK,
		.shards = shards,
		.min_workers = 1
	};
	conf.schedule.lr = 0.1;
	check(racked_new(conf, ops, init, now, &job), 0, "coordinator");
	coord = job.coord;
	fal_map_even(&holds, shards, shards);
	worker = (struct standin){ 0 };
	tickets.n = 0;
}

static void
begin(uint32_t shards)
{
	begin_epochs(shards, 1);
}

/* Two sessions of one process: the older session ends; then the other one leaves. */
static void
play(void)
{
	begin(1);
	join(1);
	open_as(2, 1);
	check(hello(2, "w2", 1), 0, "HELLO");
	check(fal_coord_session_end(coord, now, 2, "gone"), 0, "gone");
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

/* The exit status of a process in which this callback calls the coordinator. */
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

/* One shard gets both blocks; returns the epoch in the command. */
static uint32_t
move_to(uint32_t shard)
{
	struct fal_map map = holds;
	map.of[shard] = (struct fal_extent){ 0, 2 };
	map.of[1 - shard] = (struct fal_extent){ 0, 0 };
	told = kept = 0;
	check(fal_coord_move_blocks(coord, now, &map, "lab", &diag), 0, "a move");
	return told;
}

/* The epoch of an aborted move is not used again: its pieces may still come. */
static void
epochs_are_used_up(void **state)
{
	(void)state;
	asks = NONE;
	begin(2);
	silent = true;
	assert_int_equal(move_to(0), 2);
	assert_non_null(fal_coord_pending_map(coord));
	check(fal_coord_abort_move(coord, now), 0, "stay");
	assert_int_equal(holds.epoch, 1);
	silent = false;
	assert_int_equal(move_to(1), 3);
	assert_null(fal_coord_pending_map(coord));
	assert_int_equal(holds.epoch, 3);
	assert_int_equal(holds.of[1].count, 2);
}

/* A version that no worker can name any more does not move. */
static void
only_what_is_needed_moves(void **state)
{
	(void)state;
	asks = NONE;
	begin(2);
	assert_int_equal(move_to(0), 2);
	assert_int_equal(kept, 1);
}

/* ---- what cannot be ---------------------------------------------------------------- */

static void
says(uint32_t shard, struct fal_shard_report what)
{
	what.shard = shard;
	check(fal_coord_take_result(coord, now,
				    &(struct fal_shard_result){ &what, 1, 1 }),
	      0, "heard");
}

/* A shard that calls the values of an unknown worker too large ends the job: the
 * coordinator has no name for that worker. */
static void
words_of_nobody(void **state)
{
	static const struct {
		struct fal_shard_report is;
		bool can_be;
	} words[] = {
		{ { .kind = FAL_REPORT_STEPPED, .beyond = 1, .id = { 1, 1 } }, true },
		{ { .kind = FAL_REPORT_STEPPED, .beyond = 1, .id = { 9, 1 } }, false },
		{ { .kind = FAL_REPORT_ENDED, .beyond = 1, .id = { 9, 1 } }, false },
		{ { .kind = FAL_REPORT_STEPPED, .beyond = 1 }, false },
		{ { .kind = FAL_REPORT_COMPLETE }, true },
	};
	asks = NONE;
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		begin(2);
		join(1);
		says(1, words[i].is);
		const struct fal_coord_status s = fal_coord_status(coord);
		if (s.failed == words[i].can_be)
			fail_msg("word %zu: failed is %d", i, (int)s.failed);
		end(state);
	}
}

/* Claims a task of session 1 in a contribution of its own; returns the contribution. */
static struct fal_contrib_id
claims(uint32_t seq, struct standin_task *task)
{
	assert_true(worker.helds > 0);
	*task = standin_take(&worker, 0);
	const struct fal_msg m = standin_claim(task, seq, true);
	check(tell(1, &m), 0, "CLAIM");
	return (struct fal_contrib_id){ 1, seq };
}

/* Pushes zeros for a claimed task of session 1. */
static void
pushes(uint32_t seq, const struct standin_task *task)
{
	static const int8_t exps[2] = { FAL_EXP_FIRST, FAL_EXP_FIRST };
	struct fal_msg_ticket ticket;
	struct fal_buf records = { 0 };
	assert_true(racked_ticket(&tickets, 1, task->round, seq, &ticket));
	check(standin_zeros(2 * FAL_BLOCK, FAL_KIND_GRAD, exps, &records), 0, "records");
	struct fal_msg m = standin_push(&ticket, &records);
	m.push.epoch = holds.epoch;
	check(tell(1, &m), 0, "PUSH");
	fal_buf_free(&records);
}

/* A move that waits for the end of a round begins and ends in the event that ends the
 * round, because these shards answer at once. */
static void
moves_wait_for_no_event(void **state)
{
	(void)state;
	asks = NONE;
	begin(2);
	join(1);
	assert_int_equal(move_to(0), 0);
	for (uint32_t i = 1; worker.helds > 0; i++) {
		struct standin_task task;
		(void)claims(i, &task);
		assert_int_equal(told, 0);
		pushes(i, &task);
	}
	assert_int_equal(told, 2);
	assert_null(fal_coord_pending_map(coord));
	assert_int_equal(holds.epoch, 2);
	assert_true(fal_coord_status(coord).done);
}

/* A worker whose session ends with the step is no member of the snapshot: the trace has
 * its leave before the version. */
static void
snapshots_have_who_is_here(void **state)
{
	(void)state;
	struct fal_shard_report all[16];
	asks = NONE;
	here = 0;
	begin(2);
	join(1);
	fal_coord_request_snapshot(coord);
	for (uint32_t i = 1; worker.helds > 0; i++) {
		struct standin_task task;
		(void)claims(i, &task);
		if (worker.helds == 0)
			join(2);
		is_late = worker.helds == 0;
		pushes(i, &task);
	}
	is_late = false;
	assert_in_range(late.n, 1, 15);
	memcpy(all, late.v, late.n * sizeof(*all));
	all[late.n] = (struct fal_shard_report){
		.kind = FAL_REPORT_REFUSED, .shard = 1, .id = { 2, 1 }, .odd = "odd"
	};
	const struct fal_shard_result r = { all, late.n + 1, 16 };
	check(fal_coord_take_result(coord, now, &r), 0, "heard");
	assert_int_equal(lines("\"ev\":\"leave\""), 1);
	assert_int_equal(here, 1);
	fal_shard_result_free(&late);
}

/* The last version is evaluated once, even if its evaluation ends before the versions of
 * earlier epochs are published. */
static void
last_version_is_evaluated_once(void **state)
{
	(void)state;
	asks = NONE;
	begin_epochs(2, 2);
	join(1);
	steps_wait = true;
	for (uint32_t i = 1; worker.helds > 0; i++) {
		struct standin_task task;
		(void)claims(i, &task);
		pushes(i, &task);
	}
	steps_wait = false;
	assert_int_equal(worker.evals, 1);
	const struct fal_msg m = standin_evaluated(2, worker.eval[0], 1);
	check(tell(1, &m), 0, "EVALUATED");
	assert_int_equal(lines("\"ev\":\"update\""), 0);
	check(fal_coord_take_result(coord, now, &steps), 0, "heard");
	assert_int_equal(lines("\"ev\":\"eval\""), 1);
	assert_true(fal_coord_status(coord).done);
	racked_finish(&job, now, NULL);
	audited();
	fal_shard_result_free(&steps);
}

/* A shard's FENCED of a contribution that is not fenced changes nothing. */
static void
orders_of_nobody(void **state)
{
	(void)state;
	struct standin_task task;
	asks = NONE;
	begin(1);
	join(1);
	const struct fal_contrib_id id = claims(1, &task);
	says(0, (struct fal_shard_report){
			.kind = FAL_REPORT_FENCED, .round = task.round, .id = id });
	assert_false(fal_coord_status(coord).failed);
}

/* A shard without blocks is not waited for, whatever it reports. */
static void
words_without_blocks(void **state)
{
	(void)state;
	asks = NONE;
	begin(2);
	move_to(0);
	join(1);
	for (uint32_t i = 1; worker.helds > 0; i++) {
		struct standin_task task;
		const struct fal_contrib_id id = claims(i, &task);
		const enum fal_report_kind says_all[] = {
			FAL_REPORT_ARRIVED, FAL_REPORT_FENCED, FAL_REPORT_COMPLETE,
			FAL_REPORT_ENDED, FAL_REPORT_STEPPED
		};
		for (size_t k = 0; k < sizeof(says_all) / sizeof(says_all[0]); k++)
			says(1, (struct fal_shard_report){ .kind = says_all[k],
							   .round = task.round,
							   .version = 1,
							   .id = id,
							   .whole = true });
		pushes(i, &task);
	}
	assert_int_equal(fal_coord_status(coord).version, 1);
	assert_true(fal_coord_status(coord).done);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(none_may_call_back, end),
		cmocka_unit_test_teardown(all_are_called, end),
		cmocka_unit_test_teardown(epochs_are_used_up, end),
		cmocka_unit_test_teardown(only_what_is_needed_moves, end),
		cmocka_unit_test_teardown(moves_wait_for_no_event, end),
		cmocka_unit_test_teardown(snapshots_have_who_is_here, end),
		cmocka_unit_test_teardown(last_version_is_evaluated_once, end),
		cmocka_unit_test(words_of_nobody),
		cmocka_unit_test_teardown(orders_of_nobody, end),
		cmocka_unit_test_teardown(words_without_blocks, end),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
