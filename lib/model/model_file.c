/* Parses the model file, line by line, into layers and tensors. */
#include "model/model.h"

#include "base/filetype.h"
#include "base/mem.h"
#include "base/parse.h"
#include "base/text.h"
#include "model/safetensors.h"

#include <string.h>

#define LINE_MAX_BYTES 256
#define WORDS_MAX 8

enum { OPT_KERNEL = 1, OPT_PAD = 2, OPT_STRIDE = 4, OPT_INIT = 8 };

static const struct layer_type {
	const char *name;
	const char *number; /* the meaning of its number; NULL: the layer has no number */
	enum fal_layer_kind kind;
	unsigned options;
} layer_types[] = {
	{ "conv", "channels", FAL_LAYER_CONV,
	  OPT_KERNEL | OPT_PAD | OPT_STRIDE | OPT_INIT },
	{ "dense", "outputs", FAL_LAYER_DENSE, OPT_INIT },
	{ "relu", NULL, FAL_LAYER_RELU, 0 },
	{ "tanh", NULL, FAL_LAYER_TANH, 0 },
	{ "maxpool", "window", FAL_LAYER_MAXPOOL, OPT_STRIDE },
	{ "avgpool", "window", FAL_LAYER_AVGPOOL, OPT_STRIDE },
	{ "flatten", NULL, FAL_LAYER_FLATTEN, 0 },
};

struct model_parser {
	const char *name;
	unsigned line;
	struct fal_diag *diag;
	struct fal_model *m;
	size_t layer_cap, tensor_cap;
	struct fal_shape shape; /* after the last layer; c = 0 before `input` */
	char text[LINE_MAX_BYTES];
	char *word[WORDS_MAX];
	unsigned words;
};

/* The number and options of a layer as written. */
struct layer_options {
	uint32_t number, kernel, pad, stride;
	enum fal_init init;
	unsigned seen;
};

#define FAIL(p, err, fmt, ...) \
	fal_diag_set((p)->diag, (err), "%s:%u: " fmt, (p)->name, (p)->line, __VA_ARGS__)

static int
parse_number(const struct model_parser *p, const char *what, const char *s, uint32_t min,
	     uint32_t *out)
{
	uint64_t v;
	if (fal_parse_u64(s, min, FAL_MODEL_MAX_DIM, &v) != 0)
		return FAIL(p, FAL_EFORMAT, "%s '%s' is not a number from %u to %d", what,
			    FAL_QUOTE(s), min, FAL_MODEL_MAX_DIM);
	*out = (uint32_t)v;
	return FAL_OK;
}

static int
parse_options(const struct model_parser *p, const struct layer_type *k,
	      struct layer_options *o)
{
	static const char *const names[] = { "kernel", "pad", "stride", "init" };
	uint32_t *const numbers[] = { &o->kernel, &o->pad, &o->stride };
	unsigned i = 1;
	int err;
	if (k->number != NULL) {
		if (p->words < 2)
			return FAIL(p, FAL_EFORMAT, "'%s' needs its %s", k->name,
				    k->number);
		if ((err = parse_number(p, k->number, p->word[i++], 1, &o->number)) != 0)
			return err;
	}
	for (; i < p->words; i++) {
		char *word = p->word[i], *value = strchr(word, '=');
		if (value == NULL)
			return FAIL(p, FAL_EFORMAT, "%s: '%s' is not an option KEY=VALUE",
				    k->name, FAL_QUOTE(word));
		*value++ = '\0';
		unsigned at = 0;
		while (at < 4 && strcmp(word, names[at]) != 0)
			at++;
		const unsigned bit = 1u << at;
		if ((k->options & bit) == 0)
			return FAIL(p, FAL_EFORMAT, "%s has no option '%s'", k->name,
				    FAL_QUOTE(word));
		if ((o->seen & bit) != 0)
			return FAIL(p, FAL_EFORMAT, "%s: option '%s' is given twice",
				    k->name, word);
		o->seen |= bit;
		if (bit != OPT_INIT) {
			err = parse_number(p, word, value, bit != OPT_PAD, numbers[at]);
			if (err != 0)
				return err;
		} else if (strcmp(value, "he") == 0) {
			o->init = FAL_INIT_HE;
		} else if (strcmp(value, "glorot") == 0) {
			o->init = FAL_INIT_GLOROT;
		} else {
			return FAIL(p, FAL_EFORMAT, "init '%s' is neither he nor glorot",
				    FAL_QUOTE(value));
		}
	}
	return FAL_OK;
}

/* Appends a tensor of the layer that comes next; `dim` ends with zeros. */
static int
add_tensor(struct model_parser *p, const char *part, const uint32_t dim[4],
	   enum fal_init init)
{
	struct fal_model *m = p->m;
	FAL_XGROW(m->tensor, p->tensor_cap, m->tensors + (size_t)1);
	struct fal_tensor *t = &m->tensor[m->tensors++];
	*t = (struct fal_tensor){ .name = fal_xprintf("%u.%s", m->layers, part),
				  .offset = m->params,
				  .packed_offset = m->params,
				  .count = 1,
				  .init = init };
	/* No overflow: each dim is at most 2^16, and each step checks the product. */
	for (; t->dims < 4 && dim[t->dims] != 0; t->dims++) {
		t->dim[t->dims] = dim[t->dims];
		t->count *= dim[t->dims];
		if (t->count + m->params > FAL_MODEL_MAX_FLOATS)
			return FAIL(p, FAL_ELIMIT,
				    "'%s' brings the model above 2^31 parameters",
				    p->word[0]);
	}
	t->fan_in = (uint32_t)(t->count / dim[0]);
	t->fan_out = t->dims > 1 ? (uint32_t)(t->count / dim[1]) : dim[0];
	m->params += t->count;
	return FAL_OK;
}

static int
add_weights(struct model_parser *p, struct fal_layer *l, const struct layer_options *o)
{
	uint32_t weight[4] = { l->out.c, l->in.c, l->kernel, l->kernel };
	uint32_t bias[4] = { l->out.c };
	l->weight = p->m->tensors;
	int err = add_tensor(p, "weight", weight, o->init);
	if (err != 0)
		return err;
	l->bias = p->m->tensors;
	return add_tensor(p, "bias", bias, FAL_INIT_ZERO);
}

/* Sets the output's rows and columns for a window that slides over the input. */
static int
set_window_output(const struct model_parser *p, struct fal_layer *l)
{
	if (l->in.flat)
		return FAIL(p, FAL_EINVAL,
			    "'%s' needs an input C H W, but has a vector of %u",
			    p->word[0], l->in.c);
	uint32_t h = l->in.h + 2 * l->pad, w = l->in.w + 2 * l->pad;
	if (l->kernel > h || l->kernel > w)
		return FAIL(p, FAL_EINVAL,
			    "'%s' window %u is larger than its input %ux%u", p->word[0],
			    l->kernel, h, w);
	l->out.h = (h - l->kernel) / l->stride + 1;
	l->out.w = (w - l->kernel) / l->stride + 1;
	if (l->out.h > FAL_MODEL_MAX_DIM || l->out.w > FAL_MODEL_MAX_DIM)
		return FAIL(p, FAL_ELIMIT, "'%s' output is larger than %d", p->word[0],
			    FAL_MODEL_MAX_DIM);
	return FAL_OK;
}

/* Checks the layer's input and options, sets the output and appends the tensors. */
static int
complete_layer(struct model_parser *p, struct fal_layer *l, const struct layer_options *o)
{
	int err;
	switch (l->kind) {
	case FAL_LAYER_CONV:
		if ((o->seen & OPT_KERNEL) == 0)
			return FAIL(p, FAL_EFORMAT, "'%s' needs kernel=N", p->word[0]);
		if (o->pad >= o->kernel)
			return FAIL(p, FAL_EINVAL,
				    "pad '%u' is not less than kernel '%u'", o->pad,
				    o->kernel);
		l->kernel = o->kernel;
		l->pad = o->pad;
		l->stride = o->stride != 0 ? o->stride : 1;
		l->out.c = o->number;
		err = set_window_output(p, l);
		return err != 0 ? err : add_weights(p, l, o);
	case FAL_LAYER_DENSE:
		if (!l->in.flat)
			return FAIL(
				p, FAL_EINVAL,
				"'dense' needs a flatten before it: input is %ux%ux%u",
				l->in.c, l->in.h, l->in.w);
		l->out.c = o->number;
		return add_weights(p, l, o);
	case FAL_LAYER_MAXPOOL:
	case FAL_LAYER_AVGPOOL:
		if (l->kind == FAL_LAYER_MAXPOOL && o->number > 16)
			return FAIL(p, FAL_ELIMIT,
				    "maxpool window '%u' is larger than 16",
				    o->number); /* a byte holds the place of a maximum */
		l->kernel = o->number;
		l->stride = o->stride != 0 ? o->stride : o->number;
		return set_window_output(p, l);
	case FAL_LAYER_FLATTEN:
		if (l->in.flat)
			return FAIL(p, FAL_EINVAL,
				    "'flatten' has a flat input of %u already", l->in.c);
		l->out = (struct fal_shape){ (uint32_t)fal_shape_floats(l->in), 1, 1,
					     true };
		break;
	case FAL_LAYER_RELU:
	case FAL_LAYER_TANH:
		break;
	}
	return FAL_OK;
}

static int
parse_layer(struct model_parser *p)
{
	struct fal_model *m = p->m;
	const struct layer_type *k = layer_types;
	const struct layer_type *end = k + sizeof(layer_types) / sizeof(layer_types[0]);
	while (k < end && strcmp(p->word[0], k->name) != 0)
		k++;
	if (k == end)
		return FAIL(p, FAL_EFORMAT, "unknown layer '%s'", FAL_QUOTE(p->word[0]));
	if (p->shape.c == 0)
		return FAIL(p, FAL_EFORMAT, "'%s' comes before the input line",
			    p->word[0]);
	if (m->layers == FAL_MODEL_MAX_LAYERS)
		return FAIL(p, FAL_ELIMIT, "'%s' is one layer more than %d", p->word[0],
			    FAL_MODEL_MAX_LAYERS);
	struct layer_options o = { .init = FAL_INIT_HE };
	int err = parse_options(p, k, &o);
	if (err != 0)
		return err;
	struct fal_layer l = { .kind = k->kind, .in = p->shape, .out = p->shape };
	if ((err = complete_layer(p, &l, &o)) != 0)
		return err;
	if (fal_shape_floats(l.out) > FAL_MODEL_MAX_FLOATS)
		return FAIL(p, FAL_ELIMIT, "'%s' has more than 2^31 outputs", p->word[0]);
	FAL_XGROW(m->layer, p->layer_cap, m->layers + (size_t)1);
	m->layer[m->layers++] = l;
	p->shape = l.out;
	return FAL_OK;
}

static int
parse_input(struct model_parser *p)
{
	uint32_t d[3] = { 1, 1, 1 };
	if (p->shape.c != 0)
		return FAIL(p, FAL_EFORMAT, "a second '%s' line", p->word[0]);
	if (p->words != 2 && p->words != 4)
		return FAIL(p, FAL_EFORMAT, "'%s' takes N, or C H W", p->word[0]);
	for (unsigned i = 1; i < p->words; i++) {
		int err = parse_number(p, "input", p->word[i], 1, &d[i - 1]);
		if (err != 0)
			return err;
	}
	struct fal_shape s = { d[0], d[1], d[2], p->words == 2 };
	if (fal_shape_floats(s) > FAL_MODEL_MAX_FLOATS)
		return FAIL(p, FAL_ELIMIT, "'%s' has more than 2^31 values", p->word[0]);
	p->shape = p->m->input = s;
	p->m->inputs = (uint32_t)fal_shape_floats(s);
	return FAL_OK;
}

static int
parse_lines(struct model_parser *p, const char *s, size_t n)
{
	while (n > 0) {
		const char *nl = memchr(s, '\n', n);
		size_t len = nl != NULL ? (size_t)(nl - s) : n;
		p->line++;
		/* Splits the line, without its comment, into p->word[]. */
		const char *hash = memchr(s, '#', len);
		const size_t end = hash != NULL ? (size_t)(hash - s) : len;
		p->words = 0;
		if (end >= sizeof(p->text))
			return FAIL(p, FAL_EFORMAT, "line is longer than %d bytes",
				    LINE_MAX_BYTES - 1);
		if (memchr(s, '\0', end) != NULL)
			return FAIL(p, FAL_EFORMAT, "line has a '%s' byte", "NUL");
		memcpy(p->text, s, end);
		p->text[end] = '\0';
		char *rest = NULL;
		for (char *w = strtok_r(p->text, " \t\r", &rest); w != NULL;
		     w = strtok_r(NULL, " \t\r", &rest)) {
			if (p->words == WORDS_MAX)
				return FAIL(p, FAL_EFORMAT, "'%s' is one word too many",
					    FAL_QUOTE(w));
			p->word[p->words++] = w;
		}
		int err = FAL_OK;
		if (p->words > 0)
			err = strcmp(p->word[0], "input") == 0 ? parse_input(p)
							       : parse_layer(p);
		if (err != 0)
			return err;
		len += nl != NULL;
		s += len;
		n -= len;
	}
	return FAL_OK;
}

int
fal_model_parse(const char *name, const char *text, size_t n, struct fal_model **out,
		struct fal_diag *diag)
{
	struct model_parser p = { .name = name, .diag = diag };
	if (fal_filetype_refuse(name, text, n, FAL_FILETYPE_NONE, diag) < 0)
		return FAL_EFORMAT;
	if (n > 0 && text[0] == '{')
		return fal_safetensors_parse_header(name, text, n, out, diag);
	p.m = fal_xcalloc(1, sizeof(*p.m));
	int err = parse_lines(&p, text, n);
	if (err == 0 && p.shape.c == 0)
		err = FAIL(&p, FAL_EFORMAT, "the model has no '%s' line", "input");
	else if (err == 0 && p.m->params == 0)
		err = FAIL(&p, FAL_EINVAL, "the model has neither '%s' nor '%s'", "conv",
			   "dense");
	else if (err == 0 && (!p.shape.flat || p.shape.c < 2))
		err = FAIL(&p, FAL_EINVAL,
			   "the last layer gives %ux%ux%u, not a vector of 2 or more "
			   "classes",
			   p.shape.c, p.shape.h, p.shape.w);
	if (err != 0) {
		fal_model_free(p.m);
		return err;
	}
	p.m->classes = p.shape.c;
	p.m->values = p.m->params;
	*out = p.m;
	return FAL_OK;
}
