/* How the elementwise kernels are made fast without changing a bit.
 *
 * FAL_VECTOR before a function compiles it for three widths and picks one when the
 * program is loaded.  Such a function does the same operations on each element, in the
 * same order, at every width; products and sums are never contracted
 * (-ffp-contract=off), so all three give the same bits, and so does plain C.
 */
#ifndef FAL_NN_VEC_H
#define FAL_NN_VEC_H

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
	!defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/* -O2 vectorises only loops of known length; the sanitizers cannot run resolvers. */
#define FAL_VECTOR                                                  \
	__attribute__((target_clones("avx512f", "avx2", "default"), \
		       optimize("vect-cost-model=dynamic")))
#else
#define FAL_VECTOR
#endif

/* Loops over this many elements, one cache line of floats, vectorise at each width. */
#define FAL_LANES 16

#endif
