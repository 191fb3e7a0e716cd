/* Images on their way to another process, when a move is called off. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../../cmd/falcon-ps/server.h"

#include <stdlib.h>
#include <string.h>

static void
add(struct image_queue *q, enum fal_fetch what, float *borrowed, bool begun)
{
	struct queued_image is = { .of = { .what = what }, .has_begun = begun };
	fal_image_add(&is.image, "params", true, borrowed, 2 * sizeof(*borrowed));
	image_queue_add(q, &is);
}

/* After an abort the memory that a piece borrows may change or be freed: a piece that has
 * begun to leave leaves unchanged, other pieces do not leave, and a fetched image does.
 */
static void
test_abort(void **state)
{
	(void)state;
	struct image_queue q = { 0 };
	float *params = malloc(2 * sizeof(*params)), kept[] = { 5, 6 };
	assert_non_null(params);
	params[0] = 1;
	params[1] = 2;
	add(&q, FAL_FETCH_PIECE, params, true);
	add(&q, FAL_FETCH_PIECE, params, false);
	add(&q, FAL_FETCH_MARKED, kept, false);
	add(&q, FAL_FETCH_PIECE, params, false);
	assert_int_equal(image_queue_abort(&q), 0);
	free(params);
	assert_int_equal(q.n, 2);
	const float *left = q.v[0].image.array[0].p;
	assert_true(q.v[0].has_begun && left[0] == 1 && left[1] == 2);
	assert_int_equal(q.v[1].of.what, FAL_FETCH_MARKED);
	assert_ptr_equal(q.v[1].image.array[0].p, kept);
	image_queue_free(&q);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_abort),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
