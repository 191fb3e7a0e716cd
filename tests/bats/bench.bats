# What make bench leaves behind, and how make check-accuracy judges; the figures
# themselves are no tests.

load common

setup() {
	run=$root/tests/bench/run
	cd "$BATS_TEST_TMPDIR"
	mkdir bin
}

# program NAME: a stand-in, its text from stdin.
program() {
	{ echo '#!/bin/sh'; cat; } >"bin/$1"
	chmod +x "bin/$1"
}

@test "bench: lines of name, value and unit become bench.json" {
	program one <<-'END'
		echo 'a.fast          1.25e-05 GB/s'
		echo 'target 0.95 of the bound: met (0.968)'
	END
	program two <<<"echo 'b.4-to-1.rate  17 ratio'"
	"$run" bench.json bin/one bin/two >out
	jq -e '. == {"a.fast": {value: 1.25e-05, unit: "GB/s"},
		"b.4-to-1.rate": {value: 17, unit: "ratio"}}' bench.json || {
		cat bench.json
		return 1
	}
	same lines "$(wc -l <out)" 3
}

@test "bench: one that fails is seen, and leaves the last figures alone" {
	echo old >bench.json
	program good <<<"echo 'a.b 1 s'"
	program bad <<<'exit 3'
	run "$run" bench.json bin/bad bin/good
	[ "$status" -ne 0 ]
	same files "$(echo bench.json*) $(cat bench.json)" 'bench.json old'
}

# judged FASHION MNIST: the script's verdict where the jobs end with these accuracies.
judged() {
	program falcon-key <<<:
	program falcon-work <<<:
	program falcon-ps <<-END
		while [ "\$1" != -s ]; do shift; done
		echo 127.0.0.1:1 >&3
		mkdir "\$2"
		case \$2 in
		*/fashion) echo '{"accuracy":$1}' ;;
		*) echo '{"accuracy":$2}' ;;
		esac >"\$2/result.json"
	END
	run env FALCON_BIN="$PWD/bin" "$root/tests/accuracy.sh"
}

@test "accuracy: both bounds have to be reached" {
	judged 0.89 0.98
	same "status: $output" "$status" 0
	judged 0.8899 0.98
	same "status: $output" "$status" 1
	has "$output" 'fashion: test accuracy 0.8899, at least 0.89: MISSED'
	judged 0.89 0.9799
	same "status: $output" "$status" 1
	has "$output" 'mnist-mlp: test accuracy 0.9799, at least 0.98: MISSED'
}
