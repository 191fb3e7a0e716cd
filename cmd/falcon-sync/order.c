/* The session with the coordinator, and requests with one answer: show, drain, pause,
 * resume, checkpoint, stop. */
#include "base/json.h"
#include "base/json_load.h"
#include "base/mem.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/table.h"
#include "crypto/secret.h"
#include "job/policy.h"
#include "net/client.h"
#include "sync.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* ---- the session --------------------------------------------------------------- */

int
sync_run(const struct sync_conf *conf, struct fal_client_conf *client)
{
	struct fal_client_key *key;
	int code = fal_client_key_load(PROG, conf->key, client->role, &key);
	if (code != FAL_EXIT_DONE)
		return code;
	client->prog = PROG;
	client->addr = conf->addr;
	client->addrs = 1;
	client->key = key;
	code = fal_client_run(client);
	fal_secret_free(key);
	return code;
}

int
sync_end(struct fal_client *client, int code)
{
	fal_client_abort(client, code);
	return FAL_OK;
}

void
sync_ask(struct fal_client *client, enum fal_verb verb, const void *args, size_t n)
{
	struct fal_msg m = { .type = FAL_MSG_CONTROL,
			     .control = { .verb = (uint8_t)verb, .args = { args, n } } };
	fal_client_send(client, &m);
	if (verb != FAL_VERB_APPLY && verb != FAL_VERB_CHECKPOINT)
		fal_client_expect_answer(client);
}

int
sync_refused(const struct fal_msg *m, const char *place)
{
	const int n = (int)m->reply.bytes.n;
	const char *why = (const char *)m->reply.bytes.p;
	const int code = m->reply.status == FAL_EXIT_NO ? FAL_EXIT_NO : FAL_EXIT_USAGE;
	return fail(code, "%s%s%.*s", place != NULL ? place : "",
		    place != NULL ? ": " : "", n, why);
}

int
sync_bad_answer(void)
{
	return fail(FAL_EXIT_NO, "an answer that cannot be read");
}

json_t *
sync_json(const struct fal_tail *t)
{
	json_error_t why;
	json_t *o = fal_json_load(t->p, t->n, 0, &why);
	if (o == NULL && why.text[0] == '\0')
		fal_out_of_memory();
	return o;
}

int
sync_unpacked(int err)
{
	if (err == FAL_ENOMEM)
		fal_out_of_memory();
	return err;
}

enum { WAITING_S = 2 }; /* after so many seconds the reason of waiting is printed */

struct order {
	enum fal_verb verb;
	struct fal_buf args;
	bool json;
	uint64_t seconds; /* the limit of waiting; 0: none */
	uint64_t passed;  /* seconds */
	uv_timer_t second;
	struct fal_client *client;
	struct fal_diag waits; /* the coordinator's reason of waiting */
};

static void
on_order_second(uv_timer_t *h)
{
	struct order *o = h->data;
	const char *waits =
		o->waits.text[0] != '\0' ? o->waits.text : "it does not answer";
	o->passed++;
	if (o->passed == o->seconds) {
		fal_cli_err(PROG, "no snapshot within %ju s: %s", o->seconds, waits);
		fal_client_abort(o->client, FAL_EXIT_TEMPFAIL);
	} else if (o->passed == WAITING_S) {
		fal_cli_err(PROG, "waiting: %s", waits);
	}
}

static void
on_order_open(void *arg, struct fal_client *client)
{
	struct order *o = arg;
	o->client = client;
	if (o->seconds > 0) {
		uv_timer_init(client->conf.loop, &o->second);
		o->second.data = o;
		uv_timer_start(&o->second, on_order_second, 1000, 1000);
	}
	sync_ask(client, o->verb, o->args.p, o->args.n);
}

static void
on_order_close(void *arg, struct fal_client *client, int code)
{
	struct order *o = arg;
	(void)client;
	(void)code;
	if (o->seconds > 0 && o->client != NULL)
		uv_close((uv_handle_t *)&o->second, NULL);
}

/* ---- show ---------------------------------------------------------------------- */

/* Reads an answer to SHOW and prints it for a person. */
static int
print_show(const json_t *o)
{
	const struct fal_policy none = { 0 };
	struct fal_table t = { .columns = 2 };
	struct fal_policy p;
	struct fal_policy_change *v;
	char rule[FAL_RULE_TEXT];
	json_t *policy;
	const char *scheme = json_string_value(json_object_get(o, "next_scheme"));
	json_int_t since, clock;
	const char *by, *next_by;
	int paused;
	int err = sync_unpacked(fal_json_unpack((json_t *)o, NULL, 0,
						"{s:o, s:I, s:s, s:I, s:b}", "policy",
						&policy, "since", &since, "by", &by,
						"clock", &clock, "paused", &paused));
	if (err < 0)
		return err;
	const struct fal_policy_text place = { .name = "policy", .line = 1 };
	err = fal_policy_json_take(policy, &place, &none, &p, NULL);
	if (err < 0)
		return err;
	/* The keys of the policy, in the form of `set`: */
	const struct fal_policy plain = { .rule = p.rule, .no_clones = p.no_clones };
	const size_t n = fal_policy_changes(&plain, &p, &v);
	fal_table_row(&t, "KEY\tVALUE");
	fal_table_row(&t, "scheme\t%s", fal_rule_text(&p.rule, rule));
	fal_table_row(&t, "clones\t%s", p.no_clones ? "no" : "yes");
	for (size_t i = 0; i < n; i++)
		fal_table_row(&t, "%s\t%s", v[i].key, v[i].to);
	free(v);
	fal_policy_free(&p);
	fal_table_row(&t, "since\t%jd\tby", (int64_t)since);
	fal_table_add(&t, "%s", by);
	fal_table_row(&t, "clock\t%jd\tpaused\t%s", (int64_t)clock,
		      paused ? "yes" : "no");
	if (scheme != NULL) { /* a scheme waits for its boundary */
		next_by = json_string_value(json_object_get(o, "next_by"));
		fal_table_row(&t, "next scheme");
		fal_table_add(&t, "%s", scheme);
		fal_table_row(&t, "next by");
		fal_table_add(&t, "%s", next_by != NULL ? next_by : "");
	}
	fal_table_print(&t);
	return err;
}

/* ---- requests ------------------------------------------------------------------ */

static int
on_order_msg(void *arg, struct fal_client *client, const struct fal_msg *m)
{
	struct order *o = arg;
	const struct fal_tail *t = &m->reply.bytes;
	if (m->type != FAL_MSG_REPLY)
		return FAL_EFORMAT;
	if (m->reply.more && o->seconds == 0 && o->verb != FAL_VERB_DRAIN)
		return sync_end(client, sync_bad_answer());
	if (m->reply.more) {
		fal_diag_set(&o->waits, 0, "%.*s", (int)t->n, (const char *)t->p);
		return FAL_OK;
	}
	if (m->reply.status != FAL_EXIT_DONE)
		return sync_end(client, sync_refused(m, NULL));
	if (o->verb != FAL_VERB_SHOW)
		return sync_end(client, FAL_EXIT_DONE);
	json_t *v = sync_json(t);
	int err = json_is_object(v) ? FAL_OK : FAL_EFORMAT;
	if (err == FAL_OK && o->json)
		printf("%.*s\n", (int)t->n, (const char *)t->p);
	else if (err == FAL_OK)
		err = print_show(v);
	json_decref(v);
	return sync_end(client, err < 0 ? sync_bad_answer()
					: fal_cli_finish(PROG, FAL_EXIT_DONE));
}

static int
order_run(const struct sync_conf *conf, struct order *o)
{
	struct fal_client_conf client = { .arg = o,
					  .role = FAL_ROLE_CONTROL,
					  .on_open = on_order_open,
					  .on_msg = on_order_msg,
					  .on_close = on_order_close };
	return sync_run(conf, &client);
}

int
sync_order(const struct sync_conf *conf, enum fal_verb verb, bool json, uint64_t seconds)
{
	struct order o = { .verb = verb, .json = json, .seconds = seconds };
	return order_run(conf, &o);
}

int
sync_drain(const struct sync_conf *conf, const char *which)
{
	/* No worker's name has a colon; "shard:N" and addresses do. */
	const bool shard = strchr(which, ':') != NULL;
	struct order o = { .verb = FAL_VERB_DRAIN };
	if (!shard && !fal_name_valid(which))
		return fail(FAL_EXIT_USAGE,
			    "drain: '%s' is not 1 to %d of A-Z a-z 0-9 . _ -",
			    FAL_QUOTE(which), FAL_NAME_MAX);
	fal_json_open(&o.args, '{');
	fal_json_key(&o.args, shard ? "shard" : "worker");
	fal_json_str(&o.args, which);
	fal_json_close(&o.args, '}');
	o.seconds = shard ? UINT64_MAX : 0; /* the moves of its blocks may take long */
	if (o.args.err < 0)
		fal_out_of_memory();
	const int code = order_run(conf, &o);
	fal_buf_free(&o.args);
	return code;
}
