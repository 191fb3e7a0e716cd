# bounds.awk: the capacity bound and the whole-task bound, in samples/s, of workers whose
# speeds were recorded, a file each of lines "seconds speed": the speed from then on.
#
# Variables: rate, samples/s of a worker at speed 1; task, batch: samples of a task, of a
# clock, whose last task may be short; until, seconds.
#
# Capacity: what all could do without ever waiting.  Whole tasks: clock after clock begins
# on all workers at once and lasts until the tasks that each can have finished
# by then are enough; that is the best for a barrier in each clock, nothing else
# costing time.

BEGIN {
	if (!(rate > 0 && task > 0 && batch > 0 && until > 0)) {
		print "bounds.awk: rate, task, batch and until are needed" >"/dev/stderr"
		exit failed = 1
	}
	workers = ARGC - 1
	full = int(batch / task)
	short = batch / task - full
	for (w = 1; w <= workers; w++)
		number[ARGV[w]] = w
}

/^[0-9]/ {
	w = number[FILENAME]
	n = ++lines[w]
	# A record begins with the first task; its first speed holds from the beginning.
	begin[w, n] = n == 1 ? 0 : $1
	speed[w, n] = $2
	work[w, n] = n == 1 ? 0 : \
		work[w, n - 1] + (begin[w, n] - begin[w, n - 1]) * speed[w, n - 1]
}

# Seconds of full speed that worker w has had at second t.
function worked(w, t,    low, high, mid) {
	low = 1
	high = lines[w]
	while (low < high) {
		mid = int((low + high + 1) / 2)
		if (begin[w, mid] <= t)
			low = mid
		else
			high = mid - 1
	}
	return work[w, low] + (t - begin[w, low]) * speed[w, low]
}

# Can all finish a clock between seconds a and b?  The short task is a worker's last.
function finished(a, b,    w, sum, own, fits) {
	fits = short < 1e-6
	for (w = 1; w <= workers; w++) {
		own = (worked(w, b) - worked(w, a)) * rate / task + 1e-6
		sum += int(own)
		if (own - int(own) >= short)
			fits = 1
	}
	return sum > full || (sum == full && fits)
}

# When a clock that begins at second a is over; never later than second 10 * until.
function clock_end(a,    low, high, mid) {
	low = a
	for (high = a + batch / rate / workers; high < 10 * until; high += high - a) {
		if (finished(a, high))
			break
		low = high
	}
	while (high - low > 1e-6) {
		mid = (low + high) / 2
		if (finished(a, mid))
			high = mid
		else
			low = mid
	}
	return high
}

END {
	if (failed)
		exit
	for (w = 1; w <= workers; w++) {
		if (lines[w] == 0) {
			print "bounds.awk: a worker recorded no speed" >"/dev/stderr"
			exit 1
		}
		capacity += rate * worked(w, until) / until
	}
	for (t = 0; t < until; clocks++)
		t = clock_end(t)
	printf "%.2f %.2f\n", capacity, clocks * batch / t
}
