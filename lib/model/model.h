/* The model: its layers, the place of each tensor in the flat parameter vector, and the
 * distribution of the first parameters; for programs with their own gradients only names
 * and shapes.  falcon-model(5) defines the text.
 *
 * A model is a value that only the parsers and fal_model_align write.  The module has no
 * arithmetic of layers (lib/math) and opens no file.
 */
#ifndef FAL_MODEL_MODEL_H
#define FAL_MODEL_MODEL_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FAL_MODEL_MAX_LAYERS 1024
#define FAL_MODEL_MAX_TENSORS 65536
#define FAL_MODEL_MAX_NAME 255  /* bytes of a tensor's name */
#define FAL_MODEL_MAX_DIMS 8    /* dimensions of a tensor */
#define FAL_MODEL_MAX_DIM 65536 /* of each number in a model file */
/* Parameters; values of an activation. */
#define FAL_MODEL_MAX_FLOATS ((uint64_t)1 << 31)

enum fal_layer_kind {
	FAL_LAYER_CONV,
	FAL_LAYER_DENSE,
	FAL_LAYER_RELU,
	FAL_LAYER_TANH,
	FAL_LAYER_MAXPOOL,
	FAL_LAYER_AVGPOOL,
	FAL_LAYER_FLATTEN
};

/* The shape of a sample between two layers. */
struct fal_shape {
	uint32_t c, h, w; /* channels, rows, columns; a flat shape has h = w = 1 */
	bool flat;        /* a vector of c values */
};

struct fal_layer {
	enum fal_layer_kind kind;
	struct fal_shape in, out;
	uint32_t kernel, stride, pad; /* conv and pools: square windows; pools: pad = 0 */
	uint32_t weight, bias;        /* conv and dense: indices into tensor[] */
};

enum fal_init {
	FAL_INIT_ZERO,
	FAL_INIT_HE,    /* uniform within ±sqrt(6 / fan_in); He et al., ICCV 2015 */
	FAL_INIT_GLOROT /* uniform within ±sqrt(6 / (fan_in + fan_out)); AISTATS 2010 */
};

struct fal_tensor {
	char *name; /* of layers LAYER.weight, LAYER.bias, numbered as in nn.Sequential */
	uint32_t dims;                    /* of layers 1, 2 or 4; a scalar has 0 */
	uint32_t dim[FAL_MODEL_MAX_DIMS]; /* conv [out, in, kh, kw]; dense [out, in];
					     bias [out] */
	uint64_t offset;                  /* of its first float in the flat vector */
	uint64_t packed_offset;           /* offset without gaps: see fal_model_pack */
	uint64_t count;                   /* floats */
	bool frozen;                      /* steps leave the tensor unchanged */
	uint32_t fan_in, fan_out;
	enum fal_init init;
};

struct fal_model {
	struct fal_shape input;
	struct fal_layer *layer;
	uint32_t layers;           /* 0: only the tensors are known */
	struct fal_tensor *tensor; /* in the order of the flat vector */
	uint32_t tensors;
	uint64_t params; /* floats of the flat vector */
	uint64_t values; /* floats of the tensors: params without the gaps of alignment */
	uint32_t inputs; /* floats of a sample; 0 without layers */
	uint32_t classes; /* floats of the last layer's output, at least 2; 0 without */
};

/* Returns the floats of one sample of shape `s`. */
static inline uint64_t
fal_shape_floats(struct fal_shape s)
{
	return (uint64_t)s.c * s.h * s.w;
}

/* Parses the `n` bytes at `text` (borrowed) as a model file or, if they begin with '{',
 * as a header of fal_safetensors_header.  `name` stands first in a diagnosis: "NAME:LINE:
 * fault".  The caller frees `*out` with fal_model_free.  FAL_EFORMAT (wrong syntax, or a
 * number outside its range), FAL_EINVAL (layers that do not fit each other), FAL_ELIMIT
 * (above a FAL_MODEL_MAX), FAL_ENOMEM (of a header).  `diag` may be NULL. */
int fal_model_parse(const char *name, const char *text, size_t n, struct fal_model **out,
		    struct fal_diag *diag);

void fal_model_free(struct fal_model *m);

/* Moves each tensor to a multiple of `block` floats of the flat vector; the gaps are 0.
 * FAL_ELIMIT: the vector would exceed FAL_MODEL_MAX_FLOATS; the model is unchanged. */
int fal_model_align(struct fal_model *m, uint32_t block);

/* Copies the tensors of a flat vector to `values`, one after another: m->values floats.
 */
void fal_model_pack(const struct fal_model *m, const float *params, float *values);
/* Copies packed tensors back into `n` floats of the flat vector, from element `first` on;
 * gaps become 0. */
void fal_model_unpack(const struct fal_model *m, const float *values, uint64_t first,
		      uint64_t n, float *params);
/* Returns the place of those floats among the packed tensors if they are contiguous
 * there; else NULL. */
const float *fal_model_packed_place(const struct fal_model *m, const float *values,
				    uint64_t first, uint64_t n);

/* Draws the first parameters into `params` (m->params floats).  Tensor number t takes the
 * stream (seed, FAL_RNG_INIT, t): value = u·(b + b) − b in float, with u from
 * fal_rng_unit and b the correctly rounded square root of the quotient above; biases are
 * 0.  Every machine draws the same bytes.  The model has layers. */
void fal_model_init(const struct fal_model *m, uint64_t seed, float *params);

#endif
