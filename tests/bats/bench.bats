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

@test "bench: figures of others stay in bench.json" {
	program one <<<"echo 'a.new 2 s'"
	echo '{"a.new":{"value":1,"unit":"s"},"b.old":{"value":3,"unit":"s"}}' >bench.json
	"$run" bench.json bin/one
	same figures "$(jq -r '[."a.new".value, ."b.old".value] | @csv' bench.json)" 2,3
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
	local sha
	sha=$(sed -n "s/^ *EPSP's model *//p" "$root/README.md")
	program falcon-key <<<:
	program falcon-work <<<:
	program falcon-ps <<-END
		while [ "\$1" != -s ]; do shift; done
		echo 127.0.0.1:1 >&3
		mkdir "\$2"
		case \$2 in
		*/fashion) echo '{"accuracy":$1,"sha256":"$sha"}' ;;
		*) echo '{"accuracy":$2}' ;;
		esac >"\$2/result.json"
	END
	run env FALCON_BIN="$PWD/bin" "$root/tests/accuracy.sh"
}

@test "accuracy: both bounds have to be reached, and what README shows" {
	judged "$(sed -n 's/^ *test accuracy *//p' "$root/README.md")" 0.98
	same "status: $output" "$status" 0
	judged 0.89 0.98
	same "status: $output" "$status" 1
	has "$output" 'fashion: test accuracy 0.89, at least 0.89: reached'
	has "$output" 'fashion: 1 of the 2 lines of README that say how it ends'
	judged 0.8899 0.98
	same "status: $output" "$status" 1
	has "$output" 'fashion: test accuracy 0.8899, at least 0.89: MISSED'
	judged 0.89 0.9799
	same "status: $output" "$status" 1
	has "$output" 'mnist-mlp: test accuracy 0.9799, at least 0.98: MISSED'
}

@test "schemes: the bounds of recorded speeds" {
	local bounds=$root/tests/bench/schemes/bounds.awk
	echo '0.0 1' >one
	echo '0.0 0.25' >two
	# 9 tasks of 16 ms: 8 and 1 take 8 of them, as 10 tasks do.
	same bounds "$(awk -v rate=500 -v task=8 -v batch=72 -v until=1.28 -f "$bounds" one two)" \
		'625.00 562.50'
	# 8 tasks and a half: 7 take 7 of them, and 1 and the half fit beside.
	same bounds "$(awk -v rate=500 -v task=8 -v batch=68 -v until=1.12 -f "$bounds" one two)" \
		'625.00 607.14'
	# 5 clocks of 0.128 s, then 3 of 0.256 s at half speed, the last of them to 1.408 s.
	printf '0.0 1\n0.64 0.5\n' >one
	same bounds "$(awk -v rate=500 -v task=8 -v batch=64 -v until=1.2 -f "$bounds" one)" \
		'383.33 363.64'
	: >empty
	run awk -v rate=500 -v task=8 -v batch=72 -v until=1 -f "$bounds" empty one
	[ "$status" -ne 0 ]
	run awk -v rate=500 -v task=8 -v until=1 -f "$bounds" one
	[ "$status" -ne 0 ]
}

# A trace of two workers and five updates of a round each; a sixth round was dropped.
schemes_trace() {
	jq -nc '{t: 0, ev: "job", batch: 16, task: 8},
		{t: 1, ev: "join", worker: "b"}, {t: 0.5, ev: "join", worker: "a"},
		(range(1; 6) as $v
			| {t: (1.5 + $v), ev: "clock", compute: 3, push: 0.5, pull: 0.25,
				wait: 0.25, late: 0.03, tx: 10, rx: 20},
			{t: (1.5 + $v), ev: "ledger", round: $v, end: "applied", tasks: 2,
				samples: 16, stale: {updates: ($v % 2)}, move: [[1, 2, 0, 1]],
				lost: []},
			{t: (1.5 + $v), ev: "update", version: $v, samples: 16}),
		{t: 7, ev: "ledger", round: 6, end: "dropped", tasks: 2, samples: 16,
			stale: {updates: 9}, move: [], lost: [[1, 0, 2]]}'
}

@test "schemes: figures of a trace" {
	schemes_trace | jq -s --argjson workers 2 --arg targets '0.79 0.80 0.9' \
		--argjson cpu '[100,1000,150,1200]' \
		--argjson curve '[[1,2.5,0.5],[4,5.5,0.8],[5,6.5,0.7]]' \
		-f "$root/tests/bench/schemes/figures.jq" >figures
	# All have joined at 1, so what came after 3 counts: updates 2 to 5, of 3.5 to 6.5 s.
	same figures "$(jq -c '[.updates, .accuracy, .samples_s, .compute, .cpu_idle, .idle,
		.bytes_per_update]' figures)" '[5,0.7,16,0.75,0.25,0.0625,30]'
	same reached "$(jq -c '.reached | map_values(if . then map(. * 10 | round) else . end)' figures)" \
		'{"0.79":[44,624],"0.80":[45,640],"0.9":null}'
	same ledger "$(jq -c '[.dropped, .duplicated, .moved, .staleness] |
		map(if type == "number" then . * 1000 | round else . end)' figures)" \
		'[167,167,417,{"0":32,"1":48}]'
	same late "$(jq '.late * 1000 | round' figures)" 10
}

# experiments WORD...: the driver, its cells being made up: asp takes twice as long as epsp, any
# other rate but 0.1 half as long, 0.4 does not get there, and ssp:3 fails.
experiments() {
	mkdir -p tests/bench/schemes tests/experiments
	ln -sfn "$root/share" share
	cp -n "$root"/tests/experiments/* tests/experiments
	program falcon-ps <<<:
	cat >tests/bench/schemes/cell <<-'END'
		#!/bin/sh
		echo "$*" >>ran
		case $2 in asp) t=16 ;; *) t=8 ;; esac
		case $5 in 0.1/*) ;; 0.4) t=null ;; *) t=$((t / 2)) ;; esac
		[ "$2" != ssp:3 ] || { echo 'cell: no luck' >&2; exit 1; }
		jq -nc --arg scheme "$2" --arg pattern "$3" --argjson seed "$4" --arg lr "$5" \
			--arg targets "$BENCH_TARGET" --argjson t "$t" '{$pattern, $scheme, $seed, $lr,
			reached: ($targets | split(" ") | map({key: ., value: ($t | if . then
				{seconds: ., samples: (. * 100)} else . end)}) | from_entries),
			accuracy: 0.7, samples_s: 900, capacity: 1000, compute: 0.9, late: 0.001,
			cpu_idle: 0.6}'
	END
	chmod +x tests/bench/schemes/cell
	run env FALCON_BIN=bin PARTS=i PATTERNS=p3 tests/experiments/run "$@"
}

@test "experiments: who is shorter, who is not within, who fails; and none is run again" {
	command -v gnuplot || skip "no gnuplot"
	mkdir -p tests/experiments
	printf '%s 0.1/0.9\n' epsp asp ssp >tests/experiments/pairs
	echo 'wbsp 0.4' >>tests/experiments/pairs
	export SCHEMES='epsp asp wbsp ssp:3'
	experiments out
	same "status: $output" "$status" 0
	# 5 seeds of epsp, 3 of the others; epsp alone to the second target, too.
	same "runs" "$(wc -l <ran)" 14
	has "$(cat out/report.md)" '| asp | 0.1/0.9 | 16.0 (16.0 to 16.0) | 50.0 % (50.0 to 50.0) |'
	has "$(cat out/report.md)" \
		'| wbsp | 0.4 | not within | at least 73.3 % (73.3 to 73.3) |'
	has "$(cat out/report.md)" 'cell DIR ssp:3 p3 2 0.1/0.9 30`: cell: no luck'
	[ -s out/p3-0.80.svg ]
	[ -s out/p3-0.85.svg ]
	has "$(<out/figures)" "p3 epsp 8.0"
	experiments out
	same "runs, those that failed" "$(wc -l <ran)" 17
}

@test "experiments: of each momentum the rate by which the fewest samples get there" {
	mkdir -p tests/experiments
	echo 'wbsp 0.3' >tests/experiments/pairs
	SCHEMES='epsp asp' experiments --tune out
	same "status: $output" "$status" 0
	same pairs "$(grep -v '#' tests/experiments/pairs)" "$(printf '%s\n' 'wbsp 0.3' \
		'epsp 0.2/0.9' 'asp 0.2/0.9' 'bsp 0.2/0.9' 'bsp,shares=speed 0.2/0.9')"
	same "rates" "$(awk '$2 == "asp" { print $5 }' ran | xargs)" '0.1/0.9 0.2/0.9 0.4/0.9 0.4 0.8 1.6'
}

# epsp LATE DRAWN: the bench of epsp, its jobs being made up: tasks are late by this part of
# their seconds, those of drawn sizes by that.
epsp() {
	program falcon-key <<<:
	program falcon-work <<<:
	program falcon-ps <<-END
		for word; do
			case \$word in
			batch.size=*) batch=\${word#*=} ;;
			*/drawn.*) late=$2 ;;
			esac
			[ "\$last" != -s ] || mkdir "\$word"
			[ "\$last" != -s ] || state=\$word
			last=\$word
		done
		jq -nc --argjson batch "\$batch" 'range(50) | {t: ., ev: "update", samples: \$batch},
			{t: ., ev: "clock", clock: ., compute: 1, push: 0, pull: 0, wait: 0.25,
			late: '"\${late:-$1}"'}' >"\$state/trace.jsonl"
		echo 127.0.0.1:1 >&3
	END
	run env FALCON_BIN="$PWD/bin" BENCH_SEED=1 timeout 60 "$root/tests/bench/bench_epsp.sh"
	same "status: $output" "$status" 1
}

@test "epsp: no figures from a machine that was too busy" {
	epsp 0.03 0
	has "$output" 'slow.4.1024: emulated tasks were 3.0 % late: no figures'
	[[ $output != *ratio* ]]
	epsp 0.019 0.021
	has "$output" 'epsp.slow.4.256.bsp                           0.8 ratio'
	has "$output" 'drawn: emulated tasks were 2.1 % late: no figures'
	[[ $output != *drawn.share* ]]
}

@test "proj: no table from a machine that was too busy" {
	mkdir -p b/schemes
	cp -r "$root/tests/bench/proj" b
	cat >b/schemes/cell <<-'END'
		#!/bin/sh
		echo "$2" >>cells
		mkdir "$1"
		: >"$1/trace.jsonl"
		echo '{"pattern": "none", "scheme": "bsp", "late": 0.021}'
	END
	chmod +x b/schemes/cell
	BENCH_PATTERNS=none BENCH_SCHEMES='bsp epsp' run b/proj/run bench.json out
	same "status: $output" "$status" 1
	has "$output" 'proj: none bsp: 2.1 % late'
	has "$output" 'proj: no table: the machine was too busy for its emulated workers'
	same "runs of bsp, and of no other" "$(xargs <cells)" "bsp bsp"
	[ ! -e bench.json ]
}
