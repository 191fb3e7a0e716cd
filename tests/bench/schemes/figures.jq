# figures.jq: the lines of a trace, slurped, to the figures of a run.
# $workers: how many; $target: test accuracy or null; $curve: [version, t, accuracy] of those
# versions that were judged, in order of time.
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
| ($curve | map(select($target != null and .[2] >= $target)) | .[0]) as $there
| {
	task: $job.task,
	batch: $job.batch,
	tasks: ($job.batch / $job.task | ceil),
	seconds: ($last - $start),
	updates: ($updates | length),
	to_target_s: (if $there then $there[1] - $start else null end),
	to_target_updates: (if $there then $there[0] else null end),
	accuracy: (if $curve == [] then null else $curve[-1][2] end),
	samples_s: share($steady[1:] | map(.samples) | add // 0; $last - $first),
	compute: share($compute; $wall),
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
