/* The properties of machines that all of Falcon relies on. */
#include <float.h>

_Static_assert(sizeof(void *) == 8,
	       "Falcon is for 64-bit machines: sums and files are larger");
_Static_assert(
	__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
	"Falcon is for little-endian machines: values are copied as they are sent");
_Static_assert(FLT_EVAL_METHOD == 0 && FLT_MANT_DIG == 24 && DBL_MANT_DIG == 53,
	       "Falcon rounds each step to IEEE single or double: no x87 (-mfpmath=sse)");
