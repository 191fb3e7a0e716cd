# A job of a second or so, for tests of whole programs.  `load common` comes before.

# bytes N TEXT...: N bytes, the text again and again.
bytes() {
	local n=$1
	shift
	yes "$@" | head -c "$n"
}

# tiny DIR: DIR/tiny.job and what belongs to it; 256 images of 4 x 4 in 4 classes, in equal
# tasks, which tests count.
tiny() {
	mkdir -p "$1"
	{
		printf '\0\0\010\003\0\0\1\0\0\0\0\4\0\0\0\4'
		bytes 4096 abcdefghijklmnopqrstu
	} >"$1/images"
	{
		printf '\0\0\010\001\0\0\1\0'
		# shellcheck disable=SC2046 # a list of numbers
		printf '\\%o' $(seq 0 255 | awk '{ print $1 % 4 }') | xargs -0 printf
	} >"$1/labels"
	printf 'input 16\ndense 4\n' >"$1/tiny.model"
	cat >"$1/tiny.job" <<-END
		[job]
		name = tiny
		seed = 1
		epochs = 2
		[model]
		file = tiny.model
		[data]
		format = idx
		train-images = images
		train-labels = labels
		test-images = images
		test-labels = labels
		[batch]
		size = 64
		task = 8
		tail = 0
		[optimizer]
		kind = sgd
		lr = 0.1
		[sync]
		scheme = epsp
		[job]
		hashes = 1
	END
}

# small_demo: share/demo will train ./tiny.job, at a rate that no machine keeps.
small_demo() {
	mkdir stand
	ln -s "$bin"/falcon-* stand
	rm stand/falcon-ps
	cat >stand/falcon-ps <<-END
		#!/bin/bash
		exec "$bin/falcon-ps" "\${@/%*fashion.job/$PWD/tiny.job}"
	END
	chmod +x stand/falcon-ps
	export FALCON_BIN=$PWD/stand DEMO_RATE=1000000000 DEMO_EPOCHS=1
}
