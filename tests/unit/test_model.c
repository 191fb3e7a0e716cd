/* The model file: shapes, names, offsets, limits, diagnoses, first weights. */
#include "base/mem.h"
#include "model/model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int
parse(const char *text, struct fal_model **m, struct fal_diag *diag)
{
	return fal_model_parse("m", text, strlen(text), m, diag);
}

static struct fal_model *
load(const char *path)
{
	char text[4096];
	struct fal_diag diag;
	struct fal_model *m = NULL;
	FILE *f = fopen(path, "r");
	assert_non_null(f);
	size_t n = fread(text, 1, sizeof(text), f);
	fclose(f);
	if (fal_model_parse(path, text, n, &m, &diag) != 0)
		fail_msg("%s", diag.text);
	return m;
}

static void
expect_tensor(const struct fal_model *m, uint32_t i, const char *name, uint64_t offset,
	      uint32_t dims, const uint32_t *dim, uint32_t fan_in, uint32_t fan_out)
{
	const struct fal_tensor *t = &m->tensor[i];
	assert_string_equal(t->name, name);
	assert_int_equal(t->offset, offset);
	assert_int_equal(t->dims, dims);
	for (uint32_t d = 0; d < dims; d++)
		assert_int_equal(t->dim[d], dim[d]);
	assert_int_equal(t->fan_in, fan_in);
	assert_int_equal(t->fan_out, fan_out);
}

static void
test_lenet5(void **state)
{
	(void)state;
	struct fal_model *m = load("share/models/lenet5");
	assert_int_equal(m->params, 61706);
	assert_int_equal(m->inputs, 784);
	assert_int_equal(m->classes, 10);
	assert_int_equal(m->layers, 12);
	assert_int_equal(m->tensors, 10);
	expect_tensor(m, 0, "0.weight", 0, 4, (uint32_t[]){ 6, 1, 5, 5 }, 25, 150);
	expect_tensor(m, 1, "0.bias", 150, 1, (uint32_t[]){ 6 }, 1, 6);
	expect_tensor(m, 2, "3.weight", 156, 4, (uint32_t[]){ 16, 6, 5, 5 }, 150, 400);
	expect_tensor(m, 4, "7.weight", 2572, 2, (uint32_t[]){ 120, 400 }, 400, 120);
	expect_tensor(m, 9, "11.bias", 61696, 1, (uint32_t[]){ 10 }, 1, 10);
	const struct fal_layer *l = m->layer;
	assert_int_equal(l[0].out.h, 28);
	assert_int_equal(l[2].out.w, 14);
	assert_int_equal(l[3].out.c, 16);
	assert_int_equal(l[3].out.h, 10);
	assert_int_equal(l[6].out.c, 400);
	assert_true(l[6].out.flat);
	fal_model_free(m);
}

static void
test_shipped(void **state)
{
	(void)state;
	struct fal_model *m = load("share/models/mlp");
	assert_int_equal(m->params, 669706);
	fal_model_free(m);
	m = load("share/models/softmax");
	assert_int_equal(m->params, 7850);
	fal_model_free(m);
}

static void
test_syntax(void **state)
{
	(void)state;
	struct fal_model *m;
	struct fal_diag diag;
	/* comments, blanks, CRLF, tabs, no newline at the end, stride defaults */
	if (parse("# c\r\n\r\n\t input 3 11 9 # in\r\nmaxpool 3 stride=2\n avgpool 2\n"
		  "conv 4 stride=2 kernel=2 pad=1 init=glorot\nflatten\ndense 2",
		  &m, &diag) != 0)
		fail_msg("%s", diag.text);
	assert_int_equal(m->layer[0].out.h, 5);
	assert_int_equal(m->layer[0].out.w, 4);
	assert_int_equal(m->layer[1].stride, 2);
	assert_int_equal(m->layer[1].out.h, 2);
	assert_int_equal(m->layer[2].out.h, 2);
	assert_int_equal(m->layer[2].out.w, 2);
	assert_int_equal(m->tensor[0].init, FAL_INIT_GLOROT);
	assert_int_equal(m->tensor[1].init, FAL_INIT_ZERO);
	assert_int_equal(m->tensor[2].init, FAL_INIT_HE);
	assert_int_equal(m->layer[4].weight, 2);
	assert_int_equal(m->layer[4].bias, 3);
	fal_model_free(m);
}

/* The displays of the manual that begin with an input line are models. */
static void
test_manual(void **state)
{
	(void)state;
	static char page[32768];
	static const char begin[] = ".Bd -literal -offset indent\ninput";
	FILE *f = fopen("man/falcon-model.5", "r");
	assert_non_null(f);
	page[fread(page, 1, sizeof(page) - 1, f)] = '\0';
	fclose(f);
	unsigned models = 0;
	for (char *p = strstr(page, begin); p != NULL; p = strstr(p, begin), models++) {
		char *end = strstr(p, ".Ed");
		struct fal_model *m = NULL;
		struct fal_diag diag;
		assert_non_null(end);
		p = strchr(p, '\n') + 1;
		if (fal_model_parse("man", p, (size_t)(end - p), &m, &diag) != 0)
			fail_msg("%s", diag.text);
		if (models == 1) /* the manual lists its tensors */
			assert_string_equal(m->tensor[5].name, "7.bias");
		fal_model_free(m);
	}
	assert_int_equal(models, 2);
}

#define IN "input 1 8 8\n"

static void
test_refusals(void **state)
{
	(void)state;
	static const struct {
		const char *text;
		int err;
		const char *diag;
	} cases[] = {
		{ "", FAL_EFORMAT, "m:0: the model has no 'input' line" },
		{ "# nothing\n\n", FAL_EFORMAT, "m:2: the model has no 'input' line" },
		{ "dense 10", FAL_EFORMAT, "m:1: 'dense' comes before the input line" },
		{ IN "input 3", FAL_EFORMAT, "m:2: a second 'input' line" },
		{ "input", FAL_EFORMAT, "m:1: 'input' takes N, or C H W" },
		{ "input 1 2", FAL_EFORMAT, "m:1: 'input' takes N, or C H W" },
		{ "input 0", FAL_EFORMAT,
		  "m:1: input '0' is not a number from 1 to 65536" },
		{ "input 65537", FAL_EFORMAT,
		  "m:1: input '65537' is not a number from 1 to 65536" },
		{ "input +3", FAL_EFORMAT,
		  "m:1: input '+3' is not a number from 1 to 65536" },
		{ "input 65536 65536 1", FAL_ELIMIT,
		  "m:1: 'input' has more than 2^31 values" },
		{ IN "lstm 3", FAL_EFORMAT, "m:2: unknown layer 'lstm'" },
		{ IN "Relu", FAL_EFORMAT, "m:2: unknown layer 'Relu'" },
		{ IN "conv", FAL_EFORMAT, "m:2: 'conv' needs its channels" },
		{ IN "conv 3", FAL_EFORMAT, "m:2: 'conv' needs kernel=N" },
		{ IN "conv x kernel=3", FAL_EFORMAT,
		  "m:2: channels 'x' is not a number from 1 to 65536" },
		{ IN "conv 3 kernel=0", FAL_EFORMAT,
		  "m:2: kernel '0' is not a number from 1 to 65536" },
		{ IN "conv 3 kernel=", FAL_EFORMAT,
		  "m:2: kernel '' is not a number from 1 to 65536" },
		{ IN "conv 3 kernel=3 kernel=3", FAL_EFORMAT,
		  "m:2: conv: option 'kernel' is given twice" },
		{ IN "conv 3 kernel=3 fast", FAL_EFORMAT,
		  "m:2: conv: 'fast' is not an option KEY=VALUE" },
		{ IN "conv 3 kernel=3 groups=2", FAL_EFORMAT,
		  "m:2: conv has no option 'groups'" },
		{ IN "conv 3 kernel=3 init=zero", FAL_EFORMAT,
		  "m:2: init 'zero' is neither he nor glorot" },
		{ IN "conv 3 kernel=3 pad=3", FAL_EINVAL,
		  "m:2: pad '3' is not less than kernel '3'" },
		{ IN "conv 3 kernel=9", FAL_EINVAL,
		  "m:2: 'conv' window 9 is larger than its input 8x8" },
		{ IN "conv 1 kernel=3 stride=0", FAL_EFORMAT,
		  "m:2: stride '0' is not a number from 1 to 65536" },
		{ IN "maxpool 2 pad=1", FAL_EFORMAT, "m:2: maxpool has no option 'pad'" },
		{ IN "maxpool 9", FAL_EINVAL,
		  "m:2: 'maxpool' window 9 is larger than its input 8x8" },
		{ "input 1 40 40\nmaxpool 17", FAL_ELIMIT,
		  "m:2: maxpool window '17' is larger than 16" },
		{ "input 9\navgpool 2", FAL_EINVAL,
		  "m:2: 'avgpool' needs an input C H W, but has a vector of 9" },
		{ "input 9\nflatten", FAL_EINVAL,
		  "m:2: 'flatten' has a flat input of 9 already" },
		{ IN "relu 3", FAL_EFORMAT, "m:2: relu: '3' is not an option KEY=VALUE" },
		{ IN "dense 10", FAL_EINVAL,
		  "m:2: 'dense' needs a flatten before it: input is 1x8x8" },
		{ IN "flatten\ndense 3 kernel=2", FAL_EFORMAT,
		  "m:3: dense has no option 'kernel'" },
		{ IN "flatten", FAL_EINVAL,
		  "m:2: the model has neither 'conv' nor 'dense'" },
		{ IN "conv 3 kernel=8", FAL_EINVAL,
		  "m:2: the last layer gives 3x1x1, not a vector of 2 or more classes" },
		{ IN "flatten\ndense 1\n", FAL_EINVAL,
		  "m:3: the last layer gives 1x1x1, not a vector of 2 or more classes" },
		{ "input 65536\ndense 65536", FAL_ELIMIT,
		  "m:2: 'dense' brings the model above 2^31 parameters" },
		{ "input 1 8 65536\nconv 65536 kernel=1", FAL_ELIMIT,
		  "m:2: 'conv' has more than 2^31 outputs" },
		{ "input 2 3 4 5 6 7 8 9", FAL_EFORMAT, "m:1: '9' is one word too many" },
		{ "re\x01lu", FAL_EFORMAT, "m:1: unknown layer 're?lu'" },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct fal_model *m = NULL;
		struct fal_diag diag = { "" };
		int err = parse(cases[i].text, &m, &diag);
		if (err != cases[i].err || strcmp(diag.text, cases[i].diag) != 0)
			fail_msg("case %zu: %d \"%s\", expected %d \"%s\"", i, err,
				 diag.text, cases[i].err, cases[i].diag);
		assert_null(m);
		assert_int_equal(parse(cases[i].text, &m, NULL), err);
	}
}

static void
test_odd_lines(void **state)
{
	(void)state;
	struct fal_model *m = NULL;
	struct fal_diag diag;
	char line[400] = "input 3\n";
	assert_int_equal(fal_model_parse("m", "input 3\0\n", 9, &m, &diag), FAL_EFORMAT);
	assert_string_equal(diag.text, "m:1: line has a 'NUL' byte");
	memset(line + 8, ' ', 256);
	assert_int_equal(parse(line, &m, &diag), FAL_EFORMAT);
	assert_string_equal(diag.text, "m:2: line is longer than 255 bytes");
	memcpy(line + 8, "dense 2#", 8); /* a comment may be longer */
	assert_int_equal(parse(line, &m, &diag), 0);
	fal_model_free(m);
}

static void
test_layer_limit(void **state)
{
	(void)state;
	static char text[16 + 6 * FAL_MODEL_MAX_LAYERS + 16];
	struct fal_model *m;
	struct fal_diag diag;
	size_t n = (size_t)sprintf(text, "input 4\ndense 3\n");
	for (unsigned i = 1; i < FAL_MODEL_MAX_LAYERS; i++)
		n += (size_t)sprintf(text + n, "relu\n");
	assert_int_equal(parse(text, &m, &diag), 0);
	assert_int_equal(m->layers, FAL_MODEL_MAX_LAYERS);
	fal_model_free(m);
	sprintf(text + n, "tanh\n");
	assert_int_equal(parse(text, &m, &diag), FAL_ELIMIT);
	assert_string_equal(diag.text, "m:1026: 'tanh' is one layer more than 1024");
}

/* Any prefix and any changed byte is judged, not followed into the ditch. */
static void
test_mutations(void **state)
{
	(void)state;
	static const char good[] =
		IN "conv 3 kernel=3 pad=1\nmaxpool 2 stride=1\nflatten\ndense 2\n";
	unsigned refused = 0, tried = 0;
	for (size_t n = 0; n < sizeof(good); n++)
		for (unsigned c = 0; c < 256; c++, tried++) {
			char text[sizeof(good)];
			struct fal_model *m = NULL;
			memcpy(text, good, sizeof(good));
			text[n] = (char)c;
			size_t len = c == 0 ? n : sizeof(good) - 1;
			if (fal_model_parse("m", text, len, &m, NULL) != 0)
				refused++;
			fal_model_free(m);
		}
	print_message("# %u of %u mutations refused\n", refused, tried);
	assert_true(refused > tried / 2 && refused < tried);
}

static void
test_init(void **state)
{
	(void)state;
	struct fal_model *m;
	float *w;
	assert_int_equal(parse("input 50\ndense 300\nrelu\ndense 4 init=glorot", &m,
			       NULL),
			 0);
	w = fal_calloc(m->params, sizeof(*w));
	assert_non_null(w);
	fal_model_init(m, 42, w);
	uint64_t h = 0xcbf29ce484222325u;
	for (uint32_t i = 0; i < m->tensors; i++) {
		const struct fal_tensor *t = &m->tensor[i];
		double fan = i == 0 ? 50 : 304, most = 0.0, bound = sqrt(6.0 / fan);
		for (uint64_t j = t->offset; j < t->offset + t->count; j++) {
			uint32_t word;
			most = fmax(most, fabs((double)w[j]));
			memcpy(&word, &w[j], sizeof(word));
			h = (h ^ word) * 0x100000001b3u;
		}
		if (t->dims == 1 ? most != 0.0
				 : !(most <= bound * 1.0000001 && most > bound * 0.99))
			fail_msg("%s: largest %g, bound %g", t->name, most, bound);
	}
	const uint64_t want = 0x548c8d1866bd368eu; /* the same on every machine */
	if (h != want)
		fail_msg("hash %016llx, expected %016llx", (unsigned long long)h,
			 (unsigned long long)want);
	free(w);
	fal_model_free(m);
	fal_model_free(NULL);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lenet5),    cmocka_unit_test(test_shipped),
		cmocka_unit_test(test_syntax),    cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_odd_lines), cmocka_unit_test(test_layer_limit),
		cmocka_unit_test(test_mutations), cmocka_unit_test(test_init),
		cmocka_unit_test(test_manual),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
