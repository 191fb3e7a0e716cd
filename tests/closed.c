/* MODE=tsan: libuv closes descriptors by syscall(SYS_close, …), which the sanitizer does
 * not see; the next descriptor with that number, of another thread, would be a race with
 * whoever had the first. */
#include <dlfcn.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>

__attribute__((visibility("default"))) long
syscall(long number, ...)
{
	long arg[6];
	va_list args;
	va_start(args, number);
	for (unsigned i = 0; i < 6; i++)
		arg[i] = va_arg(args, long);
	va_end(args);
	if (number == SYS_close)
		return close((int)arg[0]);
	long (*real)(long, ...) = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
	return real(number, arg[0], arg[1], arg[2], arg[3], arg[4], arg[5]);
}
