/* FAL_VECTOR before a function: faster loops with the same bits.
 *
 * Compiles the function for three widths of vectors; the loader picks one.  Such a
 * function is exact, or does the same operations on each element in the same order at
 * every width; products and sums are never contracted (-ffp-contract=off), so all three
 * give the same bits as plain C.  No value may go from float to int and back, as
 * -fno-trapping-math may turn that into a mere rounding.
 */
#ifndef FAL_BASE_VECTOR_H
#define FAL_BASE_VECTOR_H

/* gcc's -O2 vectorises only loops of known length, hence the cost model; -O3 instead
 * halves the speed of a LeNet-5 task (GCC 12, AVX-512) and gives the exact sums nothing.
 * The sanitizers cannot run the resolvers of target_clones. */
#ifdef __clang__
#define FAL_VECTOR_COST
#define FAL_VECTOR_SANITIZED \
	(__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#else
#define FAL_VECTOR_COST __attribute__((optimize("vect-cost-model=dynamic")))
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FAL_VECTOR_SANITIZED 1
#else
#define FAL_VECTOR_SANITIZED 0
#endif
#endif
/* The clones of clang before 18 are found by their own file only. */
#if !defined(__x86_64__) || FAL_VECTOR_SANITIZED || \
	(defined(__clang__) && __clang_major__ < 18)
#define FAL_VECTOR FAL_VECTOR_COST
#elif defined(FAL_VECTOR_HELD) /* to "avx512f", "avx2" or "sse2", by tests and benches \
				*/
#define FAL_VECTOR __attribute__((target(FAL_VECTOR_HELD))) FAL_VECTOR_COST
#else
#define FAL_VECTOR \
	__attribute__((target_clones("avx512f", "avx2", "default"))) FAL_VECTOR_COST
#endif

/* Loops over this many elements, one cache line of floats, vectorise at each width. */
#define FAL_LANES 16

#endif
