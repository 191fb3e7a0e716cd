/* set and apply: send policies, one APPLY after the other. */
#include "base/buf.h"
#include "base/fault.h"
#include "base/json.h"
#include "base/json_load.h"
#include "base/mem.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/file.h"
#include "job/policy.h"
#include "sync.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	FILE_MAX = 4 << 20, /* bytes of a file of policies */
	READ_BYTES = 1 << 16
};

struct change {
	const struct sync_change *o;
	struct fal_client *client;
	struct fal_policy_text text; /* policies to send; n 0: none */
	bool named;                  /* refusals name the place, NAME:LINE */
	char place[256 + 16];        /* of the last sent policy */
	bool is_pending;             /* an APPLY waits for its answer */
	bool refused;                /* at least one policy was */
	/* apply -: */
	bool from_stdin;   /* `text` is a line in `in` */
	struct fal_buf in; /* bytes of stdin; `used` of them have been in `text` */
	size_t used;
	bool eof, polled; /* polled: stdin is no plain file, and `poll` exists */
	uv_poll_t poll;
};

static bool
change_is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Takes the first policy off `text`, and checks it as far as possible without the job;
 * *one is its text, without blanks around it. */
static int
change_take_policy(struct fal_policy_text *text, struct fal_policy_text *one,
		   struct fal_diag *diag)
{
	const struct fal_policy none = { 0 };
	struct fal_policy p;
	for (; text->n > 0 && change_is_blank(*text->p); text->p++, text->n--)
		text->line += *text->p == '\n';
	*one = *text;
	int err = fal_policy_json_get(text, &none, &p, diag);
	if (err < 0)
		return err;
	fal_policy_free(&p);
	one->n = (size_t)(text->p - one->p);
	while (change_is_blank(one->p[one->n - 1]))
		one->n--;
	return FAL_OK;
}

/* Ends the session because of a bad policy. */
static void
change_fail(struct change *c, int err, const struct fal_diag *diag)
{
	fal_cli_err(PROG, "%s", diag->text);
	fal_client_abort(c->client, err == FAL_ENOMEM ? FAL_EXIT_NO : FAL_EXIT_USAGE);
}

/* ---- stdin --------------------------------------------------------------------- */

/* Sets `text` to the next line of stdin; false: no whole line is there. */
static bool
change_next_line(struct change *c)
{
	char *p = (char *)c->in.p + c->used;
	const size_t n = c->in.n - c->used;
	const char *nl = n > 0 ? memchr(p, '\n', n) : NULL;
	if (nl == NULL && (!c->eof || n == 0))
		return false;
	c->text.line++;
	c->text.p = p;
	c->text.n = nl != NULL ? (size_t)(nl - p) : n;
	c->used += c->text.n + (nl != NULL);
	fal_policy_blank_comments(p, c->text.n);
	const size_t bom = c->text.line == 1 ? fal_text_bom(p, c->text.n) : 0;
	c->text.p += bom;
	c->text.n -= bom;
	while (c->text.n > 0 && change_is_blank(*c->text.p)) {
		c->text.p++;
		c->text.n--;
	}
	return true;
}

/* Reads from stdin; blocks only if stdin cannot be polled. */
static void
change_read_stdin(struct change *c)
{
	struct fal_diag diag;
	if (c->used > 0) {
		memmove(c->in.p, c->in.p + c->used, c->in.n - c->used);
		c->in.n -= c->used;
		c->used = 0;
	}
	if (c->in.n > FAL_POLICY_TEXT_MAX) {
		int err =
			fal_diag_set(&diag, FAL_ELIMIT,
				     "%s:%u: a policy of more than %zu bytes",
				     c->text.name, c->text.line + 1, FAL_POLICY_TEXT_MAX);
		change_fail(c, err, &diag);
		return;
	}
	uint8_t *room = fal_buf_room(&c->in, READ_BYTES);
	if (room == NULL)
		fal_out_of_memory();
	ssize_t n = FAL_TRY(READ, -1, read(STDIN_FILENO, room, READ_BYTES));
	c->in.n -= READ_BYTES - (n > 0 ? (size_t)n : 0);
	c->eof = n == 0;
	if (n < 0 && errno != EINTR && errno != EAGAIN) {
		int err = fal_diag_set(&diag, FAL_EIO, "%s: %s", c->text.name,
				       strerror(errno));
		change_fail(c, err, &diag);
	}
}

static void change_send_next(struct change *c);

static void
on_stdin_readable(uv_poll_t *h, int status, int events)
{
	struct change *c = h->data;
	(void)status; /* read(2) reports errors, too */
	(void)events;
	uv_poll_stop(h);
	change_read_stdin(c);
	change_send_next(c);
}

/* ---- the session --------------------------------------------------------------- */

/* No APPLY is pending: sends the next policy, or ends the session. */
static void
change_send_next(struct change *c)
{
	struct fal_policy_text one;
	struct fal_diag diag;
	struct fal_buf b = { 0 };
	while (c->text.n == 0 && !fal_client_is_over(c->client)) {
		if (c->from_stdin && change_next_line(c))
			continue;
		if (!c->from_stdin || c->eof) {
			fal_client_abort(c->client,
					 c->refused ? FAL_EXIT_NO : FAL_EXIT_DONE);
		} else if (c->polled) {
			uv_poll_start(&c->poll, UV_READABLE, on_stdin_readable);
			return;
		} else {
			change_read_stdin(c);
		}
	}
	if (fal_client_is_over(c->client))
		return;
	int err = change_take_policy(&c->text, &one, &diag);
	if (err < 0) {
		change_fail(c, err, &diag);
		return;
	}
	snprintf(c->place, sizeof(c->place), "%.255s:%u", one.name, one.line);
	fal_json_open(&b, '{');
	fal_json_key(&b, "policy");
	fal_put_bytes(&b, one.p, one.n);
	fal_json_member_bool(&b, "dry_run", c->o->dry_run);
	fal_json_member_bool(&b, "allow_model", c->o->allow_model);
	fal_json_member_u64(&b, "min_dwell", c->o->min_dwell);
	fal_json_close(&b, '}');
	c->is_pending = true;
	if (b.err < 0)
		fal_out_of_memory();
	sync_ask(c->client, FAL_VERB_APPLY, b.p, b.n);
	fal_buf_free(&b);
}

static void
on_change_open(void *arg, struct fal_client *client)
{
	struct change *c = arg;
	c->client = client;
	if (c->from_stdin) {
		/* A plain file cannot be polled, and never blocks.  libuv leaves stdin
		 * nonblocking, which would affect other programs that have it open. */
		const int flags = fcntl(STDIN_FILENO, F_GETFL);
		c->poll.data = c;
		c->polled = uv_poll_init(client->conf.loop, &c->poll, STDIN_FILENO) == 0;
		if (c->polled)
			fcntl(STDIN_FILENO, F_SETFL, flags);
		/* The coordinator has a deadline for the first message; the pipe may be
		 * slow. */
		sync_ask(client, FAL_VERB_SHOW, NULL, 0);
	} else {
		change_send_next(c);
	}
}

/* Prints the answer to an APPLY.  FAL_EFORMAT: it is malformed. */
static int
change_print(const struct change *c, const struct fal_tail *t)
{
	json_t *o = sync_json(t), *v;
	const json_t *all = json_object_get(o, "changes");
	const json_int_t clock = json_integer_value(json_object_get(o, "clock"));
	const char *warning = json_string_value(json_object_get(o, "warning"));
	const bool ok = json_is_array(all);
	int err = ok ? FAL_OK : FAL_EFORMAT;
	size_t i;
	if (ok && warning != NULL && !c->o->json)
		fal_cli_err(PROG, "warning: %s", warning);
	if (ok && c->o->json) {
		printf("%.*s\n", (int)t->n, (const char *)t->p);
		json_decref(o);
		return FAL_OK;
	}
	if (ok && json_array_size(all) == 0)
		puts("nothing to change");
	json_array_foreach(all, i, v)
	{
		const char *key, *from, *to, *class;
		err = sync_unpacked(fal_json_unpack(v, NULL, 0, "{s:s, s:s, s:s, s:s}",
						    "key", &key, "from", &from, "to", &to,
						    "class", &class));
		if (err < 0)
			break;
		printf("%s: %s -> %s (%s)", key, from, to, class);
		if (c->o->dry_run)
			puts(", not done");
		else
			printf(", from clock %jd on\n", (int64_t)clock);
	}
	json_decref(o);
	return err;
}

static int
on_change_msg(void *arg, struct fal_client *client, const struct fal_msg *m)
{
	struct change *c = arg;
	if (m->type != FAL_MSG_REPLY)
		return FAL_EFORMAT;
	if (m->reply.more)
		return sync_end(client, sync_bad_answer());
	if (m->reply.status != FAL_EXIT_DONE) {
		int code = sync_refused(m, c->named && c->is_pending ? c->place : NULL);
		if (code != FAL_EXIT_NO)
			return sync_end(client, code);
		c->refused = true;
	} else if (c->is_pending && change_print(c, &m->reply.bytes) < 0) {
		return sync_end(client, sync_bad_answer());
	}
	if (ferror(stdout)) /* fal_cli_finish uses errno */
		return sync_end(client, fal_cli_finish(PROG, FAL_EXIT_NO));
	c->is_pending = false;
	change_send_next(c);
	return FAL_OK;
}

/* The job has ended, or the user interrupts the pipe. */
static int
on_change_over(void *arg)
{
	const struct change *c = arg;
	if (c->is_pending)
		return fail(FAL_EXIT_NO, "%s: no answer: the job is over", c->place);
	return c->refused ? FAL_EXIT_NO : FAL_EXIT_DONE;
}

static void
on_change_close(void *arg, struct fal_client *client, int code)
{
	struct change *c = arg;
	(void)client;
	(void)code;
	if (c->polled)
		uv_close((uv_handle_t *)&c->poll, NULL);
}

static int
change_run(const struct sync_conf *conf, struct change *c)
{
	struct fal_client_conf client = {
		.arg = c,
		.role = FAL_ROLE_CONTROL,
		.on_open = on_change_open,
		.on_msg = on_change_msg,
		.on_close = on_change_close,
		.on_over = c->from_stdin ? on_change_over : NULL,
		.catches_sigint = c->from_stdin,
	};
	setvbuf(stdout, NULL, _IOLBF, 0);
	int code = sync_run(conf, &client);
	if (!ferror(stdout)) /* the failure was printed */
		code = fal_cli_finish(PROG, code);
	fal_buf_free(&c->in);
	return code;
}

int
sync_set(const struct sync_conf *conf, const struct sync_change *o,
	 const char *const *arg, size_t n)
{
	struct fal_diag diag;
	json_t *policy = json_object();
	int err = FAL_OK;
	for (size_t i = 0; i < n && err == FAL_OK; i++)
		err = sync_set_word(policy, arg[i], &diag);
	if (err < 0) {
		json_decref(policy);
		return fail(FAL_EXIT_USAGE, "%s", diag.text);
	}
	char *text = json_dumps(policy, JSON_COMPACT);
	json_decref(policy);
	if (text == NULL)
		fal_out_of_memory();
	struct change c = { .o = o, .text = { "set", 1, text, strlen(text) } };
	const int code = change_run(conf, &c);
	free(text);
	return code;
}

int
sync_apply(const struct sync_conf *conf, const struct sync_change *o, const char *path)
{
	struct fal_buf text = { 0 };
	struct fal_diag diag;
	struct fal_policy_text all = { .name = path, .line = 1 }, rest, one;
	int err = fal_cli_read(path, FILE_MAX, &text, &diag), code;
	fal_policy_blank_comments((char *)text.p, text.n);
	all.p = (const char *)text.p;
	all.n = text.n;
	rest = all;
	if (err == FAL_OK && all.n == 0)
		err = fal_diag_set(&diag, FAL_EFORMAT, "%s: empty", path);
	while (err == FAL_OK && rest.n > 0)
		err = change_take_policy(&rest, &one, &diag);
	if (err == FAL_OK) {
		struct change c = { .o = o, .text = all, .named = true };
		code = change_run(conf, &c);
	} else {
		fal_cli_err(PROG, "%s", diag.text);
		code = fal_cli_file_exit_code(err);
	}
	fal_buf_free(&text);
	return code;
}

int
sync_apply_stdin(const struct sync_conf *conf, const struct sync_change *o)
{
	struct change c = {
		.o = o, .text.name = "standard input", .named = true, .from_stdin = true
	};
	return change_run(conf, &c);
}
