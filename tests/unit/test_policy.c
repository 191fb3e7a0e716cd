/* Policies as JSON: what is read, written, refused and where, and what differs. */
#include "base/err.h"
#include "job/policy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int
get(const char *text, const struct fal_policy *base, struct fal_policy *out,
    struct fal_diag *diag)
{
	struct fal_policy_text in = { "p.json", 1, text, strlen(text) };
	int err = fal_policy_json_get(&in, base, out, diag);
	if (err == FAL_OK && in.n != 0)
		fail_msg("%s: left over: '%s'", text, in.p);
	return err;
}

static void
says(const struct fal_policy *p, const char *want)
{
	struct fal_buf b = { 0 };
	fal_policy_json_put(p, &b);
	fal_put_u8(&b, '\0');
	assert_int_equal(b.err, 0);
	assert_string_equal((const char *)b.p, want);
	fal_buf_free(&b);
}

/* Patches, one upon the other, and the policy after each. */
static const char *const steps[][2] = {
	{ "{}", "{'scheme':'bsp','clones':true}" },
	{ "{'scheme':'epsp:0'}", "{'scheme':'epsp','clones':true}" },
	{ " {\n'clones' : false }\n", "{'scheme':'epsp','clones':false}" },
	{ "{'workers':{'slow':{'lanes':[1,2]},'fast':{'share':2.5,'exclude':false}}}",
	  "{'scheme':'epsp','clones':false,'workers':{'fast':{'share':2.5},"
	  "'slow':{'lanes':[1,2]}}}" },
	{ "{'workers':{'slow':{'exclude':true,'lanes':null},'fast':{'share':0}}}",
	  "{'scheme':'epsp','clones':false,'workers':{'fast':{'share':0},"
	  "'slow':{'exclude':true}}}" },
	{ "{'workers':{'slow':{'exclude':false},'fast':{'share':null},'mid':{}}}",
	  "{'scheme':'epsp','clones':false}" },
	{ "{'workers':{'slow':{'site':'oslo'},'fast':{'site':'bonn','share':1}}}",
	  "{'scheme':'epsp','clones':false,'workers':{'fast':{'share':1,'site':'bonn'},"
	  "'slow':{'site':'oslo'}}}" },
	{ "{'workers':{'slow':{'site':null},'fast':{'share':null}}}",
	  "{'scheme':'epsp','clones':false,'workers':{'fast':{'site':'bonn'}}}" },
};

/* Single quotes become double ones. */
static const char *
quoted(const char *text, char *to)
{
	char *p = to;
	for (; *text != '\0'; text++)
		*p++ = *text == '\'' ? '"' : *text;
	*p = '\0';
	return to;
}

static void
patches(void **state)
{
	(void)state;
	char text[512];
	struct fal_policy p = { 0 }, next;
	struct fal_diag diag;
	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		diag.text[0] = '\0';
		int err = get(quoted(steps[i][0], text), &p, &next, &diag);
		if (err != FAL_OK)
			fail_msg("%s: got %d (%s), want 0", text, err, diag.text);
		fal_policy_free(&p);
		p = next;
		says(&p, quoted(steps[i][1], text));
		/* What is written is read as itself. */
		const struct fal_policy none = { 0 };
		struct fal_policy_change *c;
		assert_int_equal(get(text, &none, &next, &diag), 0);
		assert_int_equal(fal_policy_changes(&p, &next, &c), 0);
		free(c);
		fal_policy_free(&next);
	}
	fal_policy_free(&p);
}

/* Several in a file, and the line of each. */
static void
streams(void **state)
{
	(void)state;
	const char text[] = "{\"scheme\":\"asp\"}\n\n{\n\"clones\":false\n}{}\n{\"x\":1}";
	struct fal_policy_text in = { "f", 1, text, sizeof(text) - 1 };
	const struct fal_policy none = { 0 };
	struct fal_policy p;
	struct fal_diag diag = { "" };
	static const unsigned behind[] = { 3, 5, 6 };
	for (int i = 0; i < 3; i++) {
		assert_int_equal(fal_policy_json_get(&in, &none, &p, &diag), 0);
		assert_int_equal(in.line, behind[i]);
		fal_policy_free(&p);
	}
	assert_int_equal(fal_policy_json_get(&in, &none, &p, &diag), FAL_EFORMAT);
	assert_string_equal(diag.text, "f:6: x: '1' stands under no key of a policy");
}

static void
comments(void **state)
{
	(void)state;
	char text[] = "# a\n{\"by # \\\" ;\": 1, ; \"b\"\n\t\"#\":2 #\"\n}# c";
	fal_policy_blank_comments(text, strlen(text));
	assert_string_equal(text, "   \n{\"by # \\\" ;\": 1,      \n\t\"#\":2   \n}   ");
}

static const struct {
	const char *text;
	int err;
	const char *says;
} bad[] = {
	{ "", FAL_EFORMAT, "p.json:1:" },
	{ "{'scheme':'asp'", FAL_EFORMAT, "p.json:1:" },
	{ "\n\n{'scheme' 'asp'}", FAL_EFORMAT, "p.json:3:15: " },
	{ "{'clones':true,'clones':true}", FAL_EFORMAT, "duplicate object key" },
	{ "[1]", FAL_EFORMAT, "p.json:1: policy: '[1]' is not an object" },
	{ "{'schema':'asp'}", FAL_EFORMAT,
	  "schema: '\"asp\"' stands under no key of a policy; did you mean 'scheme'?" },
	{ "{'scheme':3}", FAL_EFORMAT, "scheme: '3' is not a string" },
	{ "\n{'scheme':'ssp:99'}", FAL_EINVAL, "p.json:2: scheme: ssp: '99' is not" },
	{ "{'scheme':'a\\u0000b'}", FAL_EFORMAT, "p.json:1:" },
	{ "{'clones':'no'}", FAL_EFORMAT, "clones: '\"no\"' is not true or false" },
	{ "{'workers':[]}", FAL_EFORMAT, "workers: '[]' is not an object" },
	{ "{'workers':{'a b':{}}}", FAL_EINVAL, "workers.a b: '{}' does not stand" },
	{ "{'workers':{'':{}}}", FAL_EINVAL, "does not stand under a name" },
	{ "{'workers':{'a':1}}", FAL_EFORMAT, "workers.a: '1' is not an object" },
	{ "{'workers':{'a':{'lane':1}}}", FAL_EFORMAT, "worker; did you mean 'lanes'?" },
	{ "{'workers':{'a':{'lanes':[4,1]}}}", FAL_EINVAL, "a.lanes: '[4,1]' is not [" },
	{ "{'workers':{'a':{'lanes':[0,1]}}}", FAL_EINVAL, "a.lanes: '[0,1]'" },
	{ "{'workers':{'a':{'lanes':[1,1025]}}}", FAL_EINVAL, "a.lanes: '[1,1025]'" },
	{ "{'workers':{'a':{'lanes':[1,2,3]}}}", FAL_EINVAL, "a.lanes: '[1,2,3]'" },
	{ "{'workers':{'a':{'lanes':'1:2'}}}", FAL_EINVAL, "a.lanes: '\"1:2\"'" },
	{ "{'workers':{'a':{'share':-1}}}", FAL_EINVAL, "a.share: '-1' is not" },
	{ "{'workers':{'a':{'share':1001}}}", FAL_EINVAL, "a.share: '1001' is not" },
	{ "{'workers':{'a':{'exclude':1}}}", FAL_EFORMAT, "a.exclude: '1' is not true" },
	{ "{'workers':{'a':{'site':1}}}", FAL_EINVAL, "a.site: '1' is not 1 to 63 of" },
	{ "{'workers':{'a':{'site':'b c'}}}", FAL_EINVAL, "a.site: '\"b c\"' is not" },
};

static void
refuses(void **state)
{
	(void)state;
	char text[512];
	const struct fal_policy none = { 0 };
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct fal_policy p = { .workers = 77 };
		struct fal_diag diag = { "" };
		int err = get(quoted(bad[i].text, text), &none, &p, &diag);
		if (err != bad[i].err || strstr(diag.text, bad[i].says) == NULL)
			fail_msg("%s: got %d '%s', want %d '%s'", text, err, diag.text,
				 bad[i].err, bad[i].says);
		assert_int_equal(p.workers, 77); /* set only on success */
	}
}

static void
changes(void **state)
{
	(void)state;
	static const struct {
		const char *from, *to, *want;
	} row[] = {
		{ "{'scheme':'epsp:0'}", "{'scheme':'bsp'}", "scheme epsp bsp neutral;" },
		{ "{'scheme':'epsp:1'}", "{'scheme':'bsp'}", "scheme epsp:1 bsp model;" },
		{ "{'scheme':'ssp'}", "{'scheme':'ssp:3','clones':false}",
		  "clones yes no neutral;" },
		{ "{'workers':{'a':{'share':2},'c':{'exclude':true}}}",
		  "{'workers':{'b':{'lanes':[1,4]},'c':{'exclude':true,'share':0.1}}}",
		  "share.a 2 auto neutral;lanes.b auto 1:4 neutral;"
		  "share.c auto 0.1 neutral;" },
		{ "{'workers':{'a':{'site':'bonn'},'b':{'site':'oslo'}}}",
		  "{'workers':{'b':{'site':'rome'},'c':{'site':'oslo'}}}",
		  "site.a bonn auto neutral;site.b oslo rome neutral;"
		  "site.c auto oslo neutral;" },
	};
	const struct fal_policy none = { 0 };
	for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
		char text[512], got[512] = "";
		struct fal_policy a, b;
		struct fal_policy_change *c;
		assert_int_equal(get(quoted(row[i].from, text), &none, &a, NULL), 0);
		assert_int_equal(get(quoted(row[i].to, text), &none, &b, NULL), 0);
		const size_t n = fal_policy_changes(&a, &b, &c);
		for (size_t k = 0; k < n; k++)
			snprintf(got + strlen(got), sizeof(got) - strlen(got),
				 "%s %s %s %s;", c[k].key, c[k].from, c[k].to,
				 c[k].model ? "model" : "neutral");
		assert_string_equal(got, row[i].want);
		free(c);
		fal_policy_free(&a);
		fal_policy_free(&b);
	}
}

static void
copies(void **state)
{
	(void)state;
	struct fal_policy p = { .no_clones = true }, q;
	struct fal_policy_worker *w;
	for (int i = 0; i < 26; i++) { /* in any order, kept sorted */
		char name[2] = { (char)('a' + i * 7 % 26), '\0' };
		w = fal_policy_entry(&p, name);
		w->share = i;
	}
	w = fal_policy_entry(&p, "q");
	assert_int_equal(p.workers, 26);
	for (size_t i = 1; i < p.workers; i++)
		assert_true(strcmp(p.worker[i - 1].name, p.worker[i].name) < 0);
	q = fal_policy_copy(&p);
	fal_policy_free(&p);
	assert_int_equal(p.workers, 0);
	assert_true(q.no_clones);
	assert_non_null(fal_policy_find(&q, "z"));
	assert_null(fal_policy_find(&q, "zz"));
	for (size_t i = 0; i < q.workers; i++)
		q.worker[i].share = i % 2 == 0 ? -1 : 1;
	fal_policy_tidy(&q);
	assert_int_equal(q.workers, 13);
	assert_string_equal(q.worker[0].name, "b");
	fal_policy_free(&q);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(patches),  cmocka_unit_test(streams),
		cmocka_unit_test(comments), cmocka_unit_test(refuses),
		cmocka_unit_test(changes),  cmocka_unit_test(copies),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
