# falcon-stat --openmetrics: each number once, as promtool wants it; the alerts.

bats_require_minimum_version 1.5.0
load common
load job
load tiny

setup_file() {
	for_file
}

setup() {
	for_test
	tiny .
	job=(tiny.job)
}

# value NAME [LABELS]: of the metrics on stdin.
value() {
	sed -n "s/^$1{run=\"tiny\"${2:+,}${2:-}} //p"
}

@test "the metrics are the numbers of --json; of a job, a trace, a folder" {
	job+=(--set job.epochs=60)
	serve --min-workers 2
	work fast --lanes 1 --emulate rate=2000
	slow late 1/4 2000
	at_clock 12
	falcon-stat -k "$keys/observe.key" --openmetrics "$ready" >live
	[ "$(value falcon_clocks <live)" -gt 0 ]
	same "done" "$(value falcon_done <live)" 0
	wait "$ps"
	falcon-stat --openmetrics "$state" >folder
	falcon-stat --openmetrics "$state/trace.jsonl" | cmp - folder
	falcon-stat --json "$state" >json
	local name
	for name in clocks updates samples training_loss test_loss accuracy used; do
		jq -e --argjson is "$(value "falcon_$name" <folder)" \
			".$name - \$is | fabs < 1e-9" json
	done
	same "the class" "$(value falcon_worker_class 'worker="late",class="straggler"' <folder)" 1
	same "rates" "$(value falcon_samples_per_second <folder)" "$(jq .samples_s json)"
	same "in all" "$(grep -c '^falcon_' folder)" "$(jq '
		([.[] | numbers, booleans] | length) +
		([.workers[][] | numbers, booleans] | length) + (.workers | length)' json)"
	same "the end" "$(tail -n 1 folder)" "# EOF"
	same "twice" "$(grep '^falcon_' folder | sed 's/ [^ ]*$//' | sort | uniq -d)" ""
	same "metrics that are not described" "$(sed -n 's/{.*//; s/^falcon_/&/p' folder | sort -u |
		while read -r name; do
			grep -q "^# HELP $name " folder && grep -q "^# TYPE $name gauge" folder ||
				echo "$name"
		done)" ""
	# A stranger's trace may have any name.
	jq -c 'del(.h) | if .worker == "late" then .worker = "a \"b\\c" else . end' \
		"$state/trace.jsonl" >strange
	falcon-stat --openmetrics strange >quoted
	grep -q '^falcon_worker_lanes{run="tiny",worker="a \\"b\\\\c"} 1$' quoted
	command -v promtool >/dev/null || skip "promtool is not installed: the rest was checked"
	same "promtool" "$(promtool check metrics <live 2>&1)$(promtool check metrics <quoted 2>&1)" ""
}

@test "the alerts are right where they are due, and where they are not" {
	command -v promtool >/dev/null || skip "promtool is not installed"
	cp "$root/share/prometheus/falcon.rules.yml" "$root/tests/prometheus/rules.test.yml" .
	promtool check rules falcon.rules.yml
	promtool test rules rules.test.yml
	# Each of their metrics is one of ours.
	serve
	work a --lanes 1
	wait "$ps"
	falcon-stat --openmetrics "$state" >metrics
	local name
	grep -o 'falcon_[a-z_]*' falcon.rules.yml | sort -u >names
	[ -s names ]
	while read -r name; do
		grep -q "^$name{" metrics || {
			echo "no $name"
			return 1
		}
	done <names
}
