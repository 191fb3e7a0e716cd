# summary.jq: runs, slurped, to a cell for each pattern and scheme, in the order of $patterns
# and $schemes: medians over the seeds, with the least and the most.  $mlp: the runs with
# the larger model.

# null stands for "not reached": above every number.
def order: sort_by(if . == null then [1, 0] else [0, .] end);
def middle: order | if length % 2 == 1 then .[length / 2 | floor]
	elif .[length / 2] == null then null
	else (.[length / 2 - 1] + .[length / 2]) / 2 end;
def figure($unit): {value: middle, min: (order | .[0]), max: (order | .[-1]), $unit};

# Samples by staleness, added up in classes that double.
def class: tonumber | if . < 2 then tostring else
	(log2 | floor) as $e | "\(pow(2; $e))-\(pow(2; $e + 1) - 1)" end;
def histogram: map(.staleness | to_entries[]) | (map(.value) | add) as $all
	| group_by(.key | class)
	| map({from: (map(.key | tonumber) | min), class: (.[0].key | class),
		share: ((map(.value) | add) / $all)})
	| sort_by(.from);

def figures: {
	"to-target": (map(.to_target_s) | figure("s")),
	"updates-to-target": (map(.to_target_updates) | figure("updates")),
	accuracy: (map(.accuracy) | figure("ratio")),
	"of-capacity": (map(.samples_s / .capacity) | figure("ratio")),
	"of-whole-tasks": (map(.samples_s / .whole) | figure("ratio")),
	compute: (map(.compute) | figure("ratio")),
	idle: (map(.idle) | figure("ratio")),
	dropped: (map(.dropped) | figure("ratio")),
	duplicated: (map(.duplicated) | figure("ratio")),
	moved: (map(.moved) | figure("ratio")),
	"bytes-per-update": (map(.bytes_per_update) | figure("B"))
};

# What the workers of a pattern and seed could have done, for all schemes alike: by the
# longest run in which they waited for less than a fifth of the time, or the one in which
# they waited least.  Who waits does not meet, and so not record, the slowness of that time.
def bounds: map(select(.error == null)) | (map(select(.idle < 0.2)) | max_by(.seconds))
	// min_by(.idle) | {capacity, whole};
def with_bounds: group_by([.pattern, .seed])
	| map(bounds as $b | .[] | if .error then . else . + $b end);

with_bounds as $runs
| [($patterns | split(" ")[]) as $pattern | ($schemes | split(" ")[]) as $scheme
	| $runs | map(select(.pattern == $pattern and .scheme == $scheme))
	| {$pattern, $scheme, runs: length, failed: map(.error // empty)}
		+ (map(select(.error == null)) | if length == 0 then {} else
			{lr: .[0].lr, figures: figures, staleness: histogram} end)]
+ ($mlp | map({pattern: "mlp", scheme, runs: 1, failed: [.error // empty]}
	+ if .error then {} else
		{figures: {"bytes-per-update": ([.bytes_per_update] | figure("B"))}} end))
