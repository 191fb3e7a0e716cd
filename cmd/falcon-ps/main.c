/* falcon-ps: coordinator and first shard of a job. */
#include "base/json.h"
#include "base/parse.h"
#include "base/text.h"
#include "cache.h"
#include "cli/cli.h"
#include "cli/file.h"
#include "cli/table.h"
#include "job/stale.h"
#include "model/safetensors.h"
#include "net/options.h"
#include "sched/sched.h"
#include "sched/traits.h"
#include "serve.h"
#include "shard/rack.h"
#include "state.h"
#include "wire/bfp.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define PROG "falcon-ps"

struct options {
	const char *listen, *state, *trace, *keyring, *compress;
	uint64_t ready_fd, min_workers, max_memory, shards;
	struct fal_opt_list set;
	bool check, exit_when_done, json, restart;
};

struct run {
	struct options opt;
	struct ps_job job;
	struct ps_state state;
	struct ps_record record;
	struct fal_addr listen;
	struct fal_keyring *keys;
	enum fal_compress compress;
	struct ps_place model, average, result; /* where they will be */
	struct ps_found found;                  /* that the job goes on from, if there */
};

static struct fal_rack_conf
rack_conf(const struct ps_job *j, uint64_t shards)
{
	return (struct fal_rack_conf){ .shards = (uint32_t)shards,
				       .each = { .n = j->model->params,
						 .optim = j->job.optim } };
}

/* Models that are stepped by themselves. */
static uint32_t
lines(const struct fal_rule *rule)
{
	const uint32_t groups = rule->groups > 0 ? rule->groups : rule->most;
	return rule->delta ? groups : 0;
}

/* A snapshot while it is written: parameters, the optimiser's state, the average, what is
 * held, the versions that a slack keeps. */
static uint64_t
snapshot_need(const struct ps_job *j)
{
	const struct fal_job *job = &j->job;
	const uint64_t arrays =
		2 + fal_optim_slots(&job->optim) + (job->optim.ema > 0) + job->rule.slack;
	const bool any = job->state_clocks > 0 || job->state_seconds > 0;
	return any && fal_rule_traits(&job->rule).shared
		       ? arrays * sizeof(float) * j->model->params
		       : 0;
}

/* What the job takes here under its own rule: data, parameters, sums, published copies;
 * chunks that are kept as they travel; versions that a slack keeps, with the sums of
 * their rounds; elsewhere the sums of the rounds of `workers` workers; the groups' own
 * models; a snapshot. */
static uint64_t
memory_need(const struct ps_job *j, uint64_t workers, uint64_t shards)
{
	const struct fal_rule *rule = &j->job.rule;
	bool shared = fal_rule_traits(rule).shared;
	uint64_t versions = rule->slack + (shared ? 0 : workers);
	const struct fal_rack_conf rack = rack_conf(j, shards);
	const uint64_t data = ps_job_data(j);
	return data + (data < PS_CACHE_MAX ? data : PS_CACHE_MAX) +
	       (j->init != NULL ? sizeof(float) * rack.each.n : 0) +
	       fal_rack_bytes(&rack, lines(rule)) + snapshot_need(j) +
	       (4 + 4 * versions) * sizeof(float) * rack.each.n;
}

static int
say(const struct fal_diag *diag, int err)
{
	fal_cli_err(PROG, "%s", diag->text[0] != '\0' ? diag->text : fal_strerror(err));
	return fal_cli_exit(err);
}

/* What cannot be read is a bad input file, whatever was wrong. */
static int
say_bad_file(const struct fal_diag *diag, int err)
{
	say(diag, err);
	return err == FAL_ENOMEM ? FAL_EXIT_NO : FAL_EXIT_USAGE;
}

/* A trace under such a name would not be what readers take it for. */
static bool
ends_in_zst(const char *path)
{
	size_t n = path != NULL ? strlen(path) : 0;
	return n >= 4 && strcmp(path + n - 4, ".zst") == 0;
}

/* What of the need is the optimiser's. */
static void
say_state(const struct ps_job *j)
{
	const struct fal_rack_conf rack = rack_conf(j, 1);
	const uint64_t bytes = fal_rack_state_bytes(&rack, lines(&j->job.rule));
	const uint32_t floats = fal_optim_slots(&j->job.optim) + (j->job.optim.ema > 0);
	if (bytes > 0)
		fal_cli_err(PROG,
			    "%s: of that %" PRIu64 " MiB are %s's state, %u float%s a "
			    "parameter",
			    j->job.name, (bytes >> 20) + 1,
			    fal_optim_name(j->job.optim.kind), floats,
			    fal_text_s(floats));
}

/* Tensors as lines for people and scripts: name, shape, how many values. */
static int
print_tensors(const struct fal_model *m)
{
	struct fal_table table = { .columns = 3 };
	struct fal_buf text = { 0 };
	fal_table_add(&table, "tensor");
	fal_table_add(&table, "shape");
	fal_table_add(&table, "values");
	for (uint32_t i = 0; i < m->tensors; i++) {
		const struct fal_tensor *t = &m->tensor[i];
		char shape[FAL_MODEL_MAX_DIMS * 11 + 1] = "-";
		for (uint32_t d = 0, n = 0; d < t->dims; d++)
			n += (uint32_t)snprintf(shape + n, sizeof(shape) - n, "%s%u",
						d > 0 ? "x" : "", t->dim[d]);
		fal_table_add(&table, "%s", t->name);
		fal_table_add(&table, "%s", shape);
		fal_table_add(&table, "%" PRIu64, t->count);
	}
	int err = fal_table_text(&table, &text);
	if (err == FAL_OK)
		fal_cli_print(&text);
	fal_buf_free(&text);
	fal_table_free(&table);
	return err;
}

/* Judges options and files.  0 or an exit code. */
static int
check(struct run *r, const char *path)
{
	struct fal_diag diag = { "" };
	const struct options *o = &r->opt;
	int err = fal_addr_parse(o->listen, &r->listen, &diag);
	if (err < 0)
		return say(&diag, err);
	if (fal_compress_parse(o->compress, &r->compress) < 0) {
		fal_cli_err(PROG, "--compress: '%s' is not auto, always or never",
			    o->compress);
		return FAL_EXIT_USAGE;
	}
	if (o->shards < 1 || o->shards > FAL_SHARDS_MAX) {
		fal_cli_err(PROG, "--shards: %" PRIu64 " is not 1 to %d", o->shards,
			    FAL_SHARDS_MAX);
		return FAL_EXIT_USAGE;
	}
	if (ends_in_zst(o->trace)) {
		fal_cli_err(PROG,
			    "--trace: '%s': traces are written plain; leave out "
			    ".zst",
			    o->trace);
		return FAL_EXIT_USAGE;
	}
	err = ps_job_load(&r->job, path, o->set.v, o->set.n, &diag);
	if (err < 0)
		return say_bad_file(&diag, err);
	if (!o->check) {
		fal_cli_hide_memory();
		err = fal_keyring_load(o->keyring, &r->keys, &diag);
		if (err < 0)
			return say_bad_file(&diag, err);
	}
	const uint64_t need = memory_need(&r->job, o->min_workers, o->shards);
	const uint64_t params = r->job.model->values;
	const uint32_t blocks = fal_blocks(r->job.model->params),
		       tasks = ps_job_tasks(&r->job);
	char more[64] = "";
	if (r->job.job.block == FAL_JOB_BLOCK_TENSOR)
		snprintf(more, sizeof(more), " (%u without model.block = tensor)",
			 fal_blocks(params));
	fal_cli_err(PROG,
		    "%s: %" PRIu64 " parameter%s in %u block%s%s, %u task%s a clock, "
		    "needs %" PRIu64 " MiB",
		    r->job.job.name, params, fal_text_s(params), blocks,
		    fal_text_s(blocks), more, tasks, fal_text_s(tasks), (need >> 20) + 1);
	char warning[FAL_STALE_TEXT];
	if (fal_stale_warning(&r->job.job.rule, &r->job.job.optim,
			      o->min_workers > 1 ? (uint32_t)o->min_workers : 0, warning))
		fal_cli_err(PROG, "%s: warning: %s", r->job.job.name, warning);
	if (o->max_memory > 0 && need > o->max_memory) {
		fal_cli_err(PROG,
			    "%s: needs %" PRIu64 " bytes, --max-memory allows "
			    "%" PRIu64,
			    path, need, o->max_memory);
		return FAL_EXIT_NO;
	}
	if (o->check && print_tensors(r->job.model) < 0)
		return say(&diag, FAL_ENOMEM);
	if (o->check)
		say_state(&r->job);
	return FAL_EXIT_DONE;
}

/* The result as JSON, one object on one line. */
static void
result_json(const struct run *r, const struct ps_outcome *o, struct fal_buf *out)
{
	const struct fal_coord_status *s = &o->status;
	fal_put_fmt(out, "{\"name\":");
	fal_json_str(out, r->job.job.name);
	if (s->failed) {
		fal_put_fmt(out, ",\"failed\":");
		fal_json_str(out, s->why);
		fal_put_fmt(out, ",\"clock\":%" PRIu64, o->clock);
	}
	fal_put_fmt(out, ",\"model\":");
	fal_json_str(out, r->model.path);
	fal_put_fmt(out, ",\"sha256\":\"%s\",\"clocks\":%" PRIu64, o->sha256, s->clocks);
	if (o->average != NULL) {
		fal_put_fmt(out, ",\"average\":");
		fal_json_str(out, r->average.path);
		fal_put_fmt(out, ",\"average_sha256\":\"%s\"", o->average_sha256);
	}
	if (s->accuracy >= 0) {
		fal_put_fmt(out, ",\"accuracy\":");
		fal_json_num(out, s->accuracy);
		fal_put_fmt(out, ",\"test_loss\":");
		fal_json_num(out, s->accuracy_loss);
	}
	fal_put_fmt(out, ",\"loss\":");
	fal_json_num(out, s->loss);
	fal_put_fmt(out,
		    ",\"seconds\":%.3f,\"moved\":%" PRIu64 ",\"cloned\":%" PRIu64
		    ",\"filled\":%" PRIu64 ",\"lost\":%" PRIu64 ",\"skipped\":%" PRIu64
		    ",\"chain\":\"%s\"}\n",
		    o->seconds, s->moved, s->cloned, s->filled, s->lost, s->skipped,
		    r->record.chain.link);
}

/* Prints what result_json made, now or in a run before: the job is done.  An exit code.
 */
static int
print_result(const struct run *r, const struct fal_buf *json)
{
	const char *model, *sha256, *failed = NULL, *average = NULL;
	double accuracy = -1, loss, seconds;
	json_t *o = json_loadb((char *)json->p, json->n, 0, NULL);
	int err = json_unpack(o, "{s:s, s:s, s?s, s?s, s?F, s:F, s:F}", "model", &model,
			      "sha256", &sha256, "average", &average, "failed", &failed,
			      "accuracy", &accuracy, "loss", &loss, "seconds", &seconds);
	if (err == 0 && r->opt.json) {
		fwrite(json->p, 1, json->n, stdout);
	} else if (err == 0) {
		if (failed != NULL)
			printf("failed    %s\n", failed);
		printf("model     %s\nsha256    %s\n", model, sha256);
		if (average != NULL)
			printf("average   %s\n", average);
		if (accuracy >= 0)
			printf("accuracy  %.4f\n", accuracy);
		printf("loss      %.4f\ntime      %.2f s\n", loss, seconds);
	} else {
		fal_cli_err(PROG, "%s/result.json: not a result", r->state.dir);
	}
	const bool well = err == 0 && failed == NULL;
	json_decref(o);
	return well ? FAL_EXIT_DONE : FAL_EXIT_NO;
}

/* These parameters as a file, whose SHA-256 is `sha256` then. */
static int
keep_model(struct run *r, const float *params, struct ps_place *place,
	   char sha256[static 2 * FAL_HASH_BYTES + 1], struct fal_buf *out,
	   struct fal_diag *diag)
{
	uint8_t digest[FAL_HASH_BYTES];
	fal_buf_clear(out);
	int err = fal_safetensors_put(r->job.model, params, NULL, 0, out);
	if (err == FAL_OK)
		err = ps_state_put(&r->state, place, out->p, out->n, diag);
	fal_sha256(out->p, out->n, digest);
	fal_hex(digest, sizeof(digest), sha256);
	return err;
}

static int
keep(void *arg, const float *params, struct ps_outcome *o, struct fal_diag *diag)
{
	struct run *r = arg;
	struct fal_buf out = { 0 };
	int err = FAL_OK;
	if (o->average != NULL)
		err = keep_model(r, o->average, &r->average, o->average_sha256, &out,
				 diag);
	if (err == FAL_OK)
		err = keep_model(r, params, &r->model, o->sha256, &out, diag);
	fal_buf_free(&out);
	return err;
}

/* Keeps the result, and prints it: with that the job is done. */
static int
tell(void *arg, const struct ps_outcome *o, struct fal_diag *diag)
{
	struct run *r = arg;
	struct fal_buf out = { 0 };
	result_json(r, o, &out);
	int err = out.err;
	ps_record_sync(&r->record);
	if (err == FAL_OK)
		err = ps_state_put(&r->state, &r->result, out.p, out.n, diag);
	if (err == FAL_OK) {
		print_result(r, &out);
		fflush(stdout); /* the end may be far; errors are said there */
	}
	fal_buf_free(&out);
	return err;
}

/* Room for what is written at the end, so that no full disk or want of descriptors loses
 * it. */
static int
reserve(struct run *r, struct fal_diag *diag)
{
	enum { RESULT = 4096 }; /* bytes, at most */
	const uint64_t bytes = fal_safetensors_bound(r->job.model, 0);
	int err =
		ps_state_reserve(&r->state, "model.safetensors", bytes, &r->model, diag);
	if (err == FAL_OK && r->job.job.optim.ema > 0)
		err = ps_state_reserve(&r->state, "average.safetensors", bytes,
				       &r->average, diag);
	return err < 0 ? err
		       : ps_state_reserve(&r->state, "result.json", RESULT, &r->result,
					  diag);
}

/* The trace of before is gone on with; what --trace names gets all of it. */
static int
go_on(struct run *r, const char *path, struct fal_coord_trace *before,
      struct fal_diag *diag)
{
	const struct ps_manifest *m = &r->found.is;
	struct ps_trace was;
	struct ps_trace_at at = { .lines = m->lines };
	int err = ps_state_trace(&r->state, &was, &at, diag);
	if (err == FAL_OK)
		err = ps_record_append(&r->record, path, &was, diag);
	if (err == FAL_OK && r->opt.trace != NULL)
		err = ps_record_copy(&r->record, path, r->opt.trace, diag);
	if (err == FAL_OK)
		err = ps_snapshot_clear(r->state.folder, r->found.clock + 1, diag);
	*before = (struct fal_coord_trace){ .t = fmax(was.t, m->past.t),
					    .lines = m->lines,
					    .until = was.clocks,
					    .torn = was.torn };
	if (err == FAL_OK && strcmp(at.chain.link, m->chain) != 0)
		fal_cli_err(PROG,
			    "%s: its line %" PRIu64
			    " is not the one that the snapshot was taken at",
			    path, m->lines);
	return err;
}

/* Everything from its beginning; what is there of another start is kept, or goes. */
static int
begin(struct run *r, const char *path, struct fal_diag *diag)
{
	int err = ps_state_keep_trace(&r->state, diag);
	if (err == FAL_OK)
		err = ps_snapshot_clear(r->state.folder, 0, diag);
	if (err == FAL_OK)
		err = ps_record_file(&r->record, path, diag);
	if (err == FAL_OK && r->opt.trace != NULL)
		err = ps_record_file(&r->record, r->opt.trace, diag);
	return err;
}

static void
say_resumed(const struct run *r, const struct fal_coord_trace *before)
{
	const struct fal_grid grid = fal_job_grid(&r->job.job, r->job.train.n);
	if (r->found.damaged.text[0] != '\0')
		fal_cli_err(PROG, "%s/%s: the one before it is taken", r->state.dir,
			    r->found.damaged.text);
	if (before->torn > 0)
		fal_cli_err(PROG,
			    "%s/trace.jsonl: its last line was torn: %" PRIu64
			    " byte%s cut off",
			    r->state.dir, before->torn, fal_text_s(before->torn));
	/* Of what had hardly begun there is nothing to say. */
	const double again_s = before->t - r->found.is.past.t;
	if (r->found.clock > 0 || again_s >= 0.05)
		fal_cli_err(PROG,
			    "%s: resumed at clock %" PRIu64 " of %" PRIu64
			    "; %.1f s of work are done again",
			    r->job.job.name, r->found.clock, fal_grid_clocks(&grid),
			    again_s);
}

/* Trains.  An exit code. */
static int
train(struct run *r)
{
	struct fal_diag diag = { "" };
	struct ps_outcome outcome = { 0 };
	struct fal_coord_trace before = { 0 };
	const struct fal_job *job = &r->job.job;
	const bool keeps = job->state_clocks > 0 || job->state_seconds > 0;
	char *journal = ps_state_path(&r->state, "policy.jsonl");
	struct ps_serve_opt opt = { .job = &r->job,
				    .record = &r->record,
				    .snapshots = { .folder = keeps ? r->state.folder : -1,
						   .clocks = job->state_clocks,
						   .seconds = job->state_seconds,
						   .keep = job->state_keep },
				    .found = r->found.there ? &r->found : NULL,
				    .before = &before,
				    .journal = journal,
				    .listen = &r->listen,
				    .keyring = r->opt.keyring,
				    .keys = &r->keys,
				    .ready_fd = (int)r->opt.ready_fd - 1,
				    .min_workers = (uint32_t)r->opt.min_workers,
				    .shards = (uint32_t)r->opt.shards,
				    .exit_when_done = r->opt.exit_when_done,
				    .compress = r->compress,
				    .keep = keep,
				    .tell = tell,
				    .arg = r };
	char *trace = ps_state_path(&r->state, "trace.jsonl");
	int err = trace != NULL && journal != NULL ? FAL_OK : FAL_ENOMEM;
	if (err == FAL_OK)
		err = ps_state_count(&r->state, &diag);
	opt.incarnation = r->state.incarnation;
	if (err == FAL_OK)
		err = reserve(r, &diag);
	if (err == FAL_OK && r->found.there)
		err = go_on(r, trace, &before, &diag);
	else if (err == FAL_OK)
		err = begin(r, trace, &diag);
	if (err == FAL_OK && r->found.there)
		say_resumed(r, &before);
	if (err == FAL_OK)
		err = ps_serve(&opt, &outcome, &diag);
	struct fal_diag said;
	ps_record_flush(&r->record);
	while (ps_record_said(&r->record, &said))
		fal_cli_err(PROG, "%s", said.text);
	ps_record_close(&r->record);
	int code = FAL_EXIT_DONE;
	if (outcome.status.failed)
		fal_cli_err(PROG, "%s: clock %" PRIu64 ": %s", r->job.job.name,
			    outcome.status.clock, outcome.status.why);
	if (err < 0) {
		code = say(&diag, err);
	} else if (outcome.stopped && outcome.kept) {
		fal_cli_err(PROG,
			    "%s: stopped at clock %" PRIu64 " of %" PRIu64
			    ", and goes on from there when it is started again",
			    r->job.job.name, outcome.status.clock, outcome.status.clocks);
		code = outcome.signalled ? FAL_EXIT_DONE : FAL_EXIT_TEMPFAIL;
	} else if (outcome.stopped) {
		fal_cli_err(PROG, "%s: stopped at clock %" PRIu64 " of %" PRIu64,
			    r->job.job.name, outcome.status.clock, outcome.status.clocks);
		code = FAL_EXIT_TEMPFAIL;
	} else if (outcome.status.failed) {
		if (outcome.sha256[0] != '\0')
			fal_cli_err(PROG, "%s: what it was at clock %" PRIu64 " is in %s",
				    r->job.job.name, outcome.clock, r->model.path);
		code = FAL_EXIT_NO;
	}
	free(journal);
	free(trace);
	ps_place_drop(&r->model);
	ps_place_drop(&r->average);
	ps_place_drop(&r->result);
	return code;
}

/* Opens the state and trains, unless the job was done before. */
static int
serve(struct run *r)
{
	struct fal_diag diag = { "" };
	char *dir = NULL;
	if (r->opt.state == NULL && asprintf(&dir, "%s.state", r->job.job.name) < 0)
		return FAL_EXIT_NO;
	int err = ps_state_open(&r->state, dir != NULL ? dir : r->opt.state,
				&r->job.job_text, &diag);
	free(dir);
	int code;
	if (err < 0) {
		say(&diag, err);
		code = FAL_EXIT_NO;
	} else if (r->state.done) {
		code = print_result(r, &r->state.result);
		fal_cli_err(PROG, "%s: the job %s", r->job.job.name,
			    code == FAL_EXIT_DONE ? "is done" : "has failed");
	} else if (!r->opt.restart &&
		   (err = ps_snapshot_find(r->state.folder, r->job.hash_hex, &r->found,
					   &diag)) < 0) {
		say(&diag, err);
		code = FAL_EXIT_NO;
	} else if (r->state.begun && !r->opt.restart && !r->found.there) {
		fal_cli_err(PROG,
			    "%s: the job was begun there and is not done; there is no "
			    "snapshot to go on from%s%s: --restart begins at the first "
			    "clock, and keeps the trace",
			    r->state.dir, r->found.damaged.text[0] != '\0' ? ", as " : "",
			    r->found.damaged.text);
		code = FAL_EXIT_TEMPFAIL;
	} else {
		code = train(r);
	}
	ps_manifest_free(&r->found.is);
	ps_state_close(&r->state);
	return code;
}

int
main(int argc, char **argv)
{
	struct run r = { .model.fd = -1,
			 .average.fd = -1,
			 .result.fd = -1,
			 .opt = { .listen = "127.0.0.1:7000",
				  .keyring = "/etc/falcon/keyring",
				  .compress = "auto",
				  .min_workers = 1,
				  .shards = 1 } };
	struct options *o = &r.opt;
	uint64_t ready_fd = UINT64_MAX;
	const struct fal_opt opts[] = {
		{ "listen", 'l', FAL_OPT_TEXT, &o->listen, "where to listen", "ADDR" },
		{ "keyring", 'K', FAL_OPT_TEXT, &o->keyring, "keys of the clients",
		  "FILE" },
		{ "state", 's', FAL_OPT_TEXT, &o->state,
		  "folder of the job's state (NAME.state)", "DIR" },
		{ "restart", 0, FAL_OPT_FLAG, &o->restart,
		  "begin a job that was not done at its first clock", NULL },
		{ "trace", 't', FAL_OPT_TEXT, &o->trace, "write the trace here, too",
		  "FILE" },
		{ "set", 0, FAL_OPT_LIST, &o->set, "change a key of the job",
		  "SECTION.KEY=VALUE" },
		{ "min-workers", 'w', FAL_OPT_U64, &o->min_workers,
		  "the first clock waits for so many", "N" },
		{ "shards", 0, FAL_OPT_U64, &o->shards,
		  "parts that the parameters are kept in", "N" },
		{ "compress", 0, FAL_OPT_TEXT, &o->compress,
		  "zstd: auto, always or never", "MODE" },
		{ "max-memory", 0, FAL_OPT_SIZE, &o->max_memory,
		  "refuse a job that needs more", "SIZE" },
		{ "ready-fd", 0, FAL_OPT_U64, &ready_fd,
		  "write the bound address to this descriptor", "N" },
		{ "exit-when-done", 'x', FAL_OPT_FLAG, &o->exit_when_done,
		  "exit when the job is done", NULL },
		{ "check", 0, FAL_OPT_FLAG, &o->check, "judge the files and exit", NULL },
		{ "json", 'j', FAL_OPT_FLAG, &o->json, "print the result as JSON", NULL },
	};
	struct fal_cli cli = { .prog = PROG,
			       .args = "JOB",
			       .opts = opts,
			       .n_opts = sizeof(opts) / sizeof(opts[0]),
			       .min_args = 1,
			       .max_args = 1 };
	signal(SIGXFSZ, SIG_IGN); /* a limit is as a full disk: EFBIG */
	int code = fal_cli_parse(&cli, argc, argv);
	if (code < 0)
		code = fal_cli_range(&cli, "min-workers", 1, 1000000);
	if (code < 0)
		code = fal_cli_range(&cli, "max-memory", 1, UINT64_MAX);
	if (code < 0)
		code = fal_cli_range(&cli, "ready-fd", 0, 1023);
	/* Before anything is opened that might get its number. */
	if (code < 0 && ready_fd <= 1023 && fcntl((int)ready_fd, F_GETFD) < 0) {
		fal_cli_err(PROG, "--ready-fd: '%" PRIu64 "': %s", ready_fd,
			    strerror(errno));
		code = FAL_EXIT_USAGE;
	}
	o->ready_fd = ready_fd == UINT64_MAX ? 0 : ready_fd + 1;
	if (code < 0)
		code = check(&r, cli.arg[0]);
	else
		goto free_cli;
	if (code == FAL_EXIT_DONE && !o->check)
		code = serve(&r);
	code = fal_cli_finish(PROG, code);
	ps_job_free(&r.job);
	fal_keyring_free(r.keys);
free_cli:
	fal_cli_free(&cli);
	return code;
}
