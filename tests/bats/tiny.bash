# A job of a second or so, for tests of whole programs.  `load common` comes before.

# tiny DIR: DIR/tiny.job and what belongs to it; 256 images of 4 x 4 in 4 classes, in equal
# tasks, which tests count.  It is made by the shell alone (common.bash).
tiny() {
	local text
	[ -d "$1" ] || mkdir -p "$1"
	printf -v text 'abcdefghijklmnopqrstu\n%.0s' {0..195}
	printf '\0\0\010\003\0\0\1\0\0\0\0\4\0\0\0\4%s' "${text:0:4096}" >"$1/images"
	{
		printf '\0\0\010\001\0\0\1\0'
		printf '\0\1\2\3%.0s' {1..64}
	} >"$1/labels"
	printf 'input 16\ndense 4\n' >"$1/tiny.model"
	printf '%s\n' '[job]' 'name = tiny' 'seed = 1' 'epochs = 2' '[model]' \
		'file = tiny.model' '[data]' 'format = idx' 'train-images = images' \
		'train-labels = labels' 'test-images = images' 'test-labels = labels' '[batch]' \
		'size = 64' 'task = 8' 'tail = 0' '[optimizer]' 'kind = sgd' 'lr = 0.1' \
		'[sync]' 'scheme = epsp' '[job]' 'hashes = 1' >"$1/tiny.job"
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
