# figures.jq: the lines of a trace, slurped, to the figures of a run.
# $workers: how many; $targets: test accuracies with blanks between; $curve: [version, t,
# accuracy] of those versions that were judged, in order of time; $cpu: the times of cores
# that were idle, and of all, at the beginning and at the end.
#
# A target is reached between the first version that is there and the one judged before.
#
# Shares and rates are of the time between the first and the last update of those that
# came when all workers had been there for two seconds: at first they fetch data.

def share(part; whole): if whole > 0 then part / whole else 0 end;
def count(runs): [runs | .[-1]] | add // 0; # of [..., first, count]

map(select(.ev == "job"))[0] as $job
| (map(select(.ev == "join") | .t) | sort | .[$workers - 1]) as $start
| map(select(.ev == "update")) as $updates
| ($updates | map(select(.t > $start + 2))) as $steady
| $steady[0].t as $first
| $updates[-1].t as $last
| map(select(.ev == "clock" and .t > $first)) as $clocks
| map(select(.ev == "ledger")) as $ledgers
| map(select(.ev == "ledger" and (.end // "applied") == "applied")) as $applied
| ($ledgers | map(select(.end == "dropped") | .samples) | add // 0) as $dropped
| ($ledgers | map(select(.end != "abandoned") | .tasks) | add) as $tasks
| ($clocks | map(.compute) | add) as $compute
| ($clocks | map(.compute + .push + .pull + .wait) | add) as $wall
| (reduce $updates[] as $u ([0]; . + [.[-1] + $u.samples])) as $trained
| ($targets | split(" ") | map(tonumber as $target
	| ([$curve[][2] >= $target] | index(true)) as $i
	| {key: ., value: (if $i == null then null else
		$curve[$i] as $b | (if $i > 0 then $curve[$i - 1] else $b end) as $a
		| (if $i > 0 then ($target - $a[2]) / ($b[2] - $a[2]) else 1 end) as $part
		| {seconds: ($a[1] + $part * ($b[1] - $a[1]) - $start),
			samples: ($trained[$a[0]] + $part * ($trained[$b[0]] - $trained[$a[0]]))}
		end)}) | from_entries) as $reached
| {
	task: $job.task,
	batch: $job.batch,
	tasks: ($job.batch / $job.task | ceil),
	seconds: ($last - $start),
	updates: ($updates | length),
	reached: $reached,
	accuracy: (if $curve == [] then null else $curve[-1][2] end),
	samples_s: share($steady[1:] | map(.samples) | add // 0; $last - $first),
	compute: share($compute; $wall),
	cpu_idle: share($cpu[2] - $cpu[0]; $cpu[3] - $cpu[1]),
	idle: share($clocks | map(.wait) | add // 0; $wall),
	late: share($clocks | map(.late) | add // 0; $compute),
	dropped: share($dropped; $dropped + ($applied | map(.samples) | add // 0)),
	duplicated: share(count($ledgers[].lost[]); $tasks),
	moved: share(count($ledgers[].move[]); $tasks),
	staleness: ($applied
		| group_by(.stale.updates // 0)
		| map({key: (.[0].stale.updates // 0 | tostring),
			value: (map(.samples) | add)})
		| from_entries),
	bytes_per_update: share($clocks | map(.tx + .rx) | add // 0; $steady[1:] | length)
}
